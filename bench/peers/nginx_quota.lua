-- Quota in a lua_shared_dict, for bench/peers/nginx.c. Many pairs within one request, so that HTTP is not what is measured.
--   /run?what=reset&tenant=LIMIT&team=LIMIT
--   /run?what=worker                    answers the worker's pid
--   /run?what=pairs&first=ID&n=N        N pairs; answers "done"
--   /run?what=timed&first=ID&n=N        the same; answers the ns of each, one a line
--   /run?what=reserve&first=ID&amount=A answers 0 admitted, 1 the team's limit, 2 the tenant's, 3 a known id
--   /run?what=totals                    answers "TENANT TEAM"
local ffi = require 'ffi'
local quota = ngx.shared.quota
local SETTLED = 1 -- the flag of a record

local declared = pcall(ffi.typeof, 'struct peer_time')
if not declared then
    ffi.cdef [[
        struct peer_time { int64_t s; int64_t ns; };
        int clock_gettime(int clock, struct peer_time *time);
    ]]
end
local now = ffi.new('struct peer_time')
local CLOCK_MONOTONIC = 1

local function now_ns()
    ffi.C.clock_gettime(CLOCK_MONOTONIC, now)
    return tonumber(now.s) * 1e9 + tonumber(now.ns)
end

-- The limits are read once a request: a handler would have them in a table of its worker.
local team_limit = quota:get('limit:team')
local tenant_limit = quota:get('limit:tenant')

-- Each line is one step of its own for the other workers: what is added and then taken back can refuse somebody else.
local function reserve(id, amount)
    local record = 'hold:' .. id
    if not quota:add(record, amount) then
        return 3
    end
    if quota:incr('used:team', amount) > team_limit then
        quota:incr('used:team', -amount)
        quota:delete(record)
        return 1
    end
    if quota:incr('used:tenant', amount) > tenant_limit then
        quota:incr('used:tenant', -amount)
        quota:incr('used:team', -amount)
        quota:delete(record)
        return 2
    end
    return 0
end

local function settle(id, amount)
    local record = 'hold:' .. id
    local held, flags = quota:get(record)
    if not held then
        return 2
    end
    if flags == SETTLED then
        return 1
    end
    quota:incr('used:team', amount - held)
    quota:incr('used:tenant', amount - held)
    quota:set(record, amount, 0, SETTLED)
    return 0
end

-- The amounts of peer_held() and peer_actual().
local function pair(id)
    return reserve(id, 1000 + id % 64) == 0 and settle(id, 700 + id % 32) == 0
end

local what = ngx.var.arg_what
local first = tonumber(ngx.var.arg_first)
local n = tonumber(ngx.var.arg_n)
if what == 'reset' then
    quota:flush_all()
    quota:flush_expired()
    quota:set('limit:team', tonumber(ngx.var.arg_team))
    quota:set('limit:tenant', tonumber(ngx.var.arg_tenant))
    quota:set('used:team', 0)
    quota:set('used:tenant', 0)
    ngx.print('done')
elseif what == 'worker' then
    ngx.print(ngx.worker.pid())
elseif what == 'pairs' then
    for id = first, first + n - 1 do
        if not pair(id) then
            ngx.print('failed ', id)
            return
        end
    end
    ngx.print('done')
elseif what == 'timed' then
    local times = {}
    local before = now_ns()
    for id = first, first + n - 1 do
        if not pair(id) then
            ngx.print('failed ', id)
            return
        end
        local after = now_ns()
        times[#times + 1] = string.format('%.0f\n', after - before)
        before = now_ns()
    end
    ngx.print(times)
elseif what == 'reserve' then
    ngx.print(reserve(first, tonumber(ngx.var.arg_amount)))
elseif what == 'totals' then
    ngx.print(string.format('%.0f %.0f', quota:get('used:tenant'), quota:get('used:team')))
end
