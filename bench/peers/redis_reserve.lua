-- KEYS: the team's budget, the tenant's, the record of this hold.  ARGV: what to hold, in micros.
-- Answers 0 admitted, 1 the team's limit, 2 the tenant's, 3 the id is known.
if not redis.call('SET', KEYS[3], ARGV[1], 'NX') then
    return 3
end
local team = redis.call('HMGET', KEYS[1], 'limit', 'used')
local tenant = redis.call('HMGET', KEYS[2], 'limit', 'used')
local amount = tonumber(ARGV[1])
if team[2] + amount > tonumber(team[1]) then
    redis.call('DEL', KEYS[3])
    return 1
end
if tenant[2] + amount > tonumber(tenant[1]) then
    redis.call('DEL', KEYS[3])
    return 2
end
redis.call('HINCRBY', KEYS[1], 'used', ARGV[1])
redis.call('HINCRBY', KEYS[2], 'used', ARGV[1])
return 0
