-- KEYS: the team's budget, the tenant's, the record of this hold.  ARGV: what the call cost, in micros.
-- Answers 0 settled, 1 was settled before, 2 the id is not known.
local held = redis.call('GET', KEYS[3])
if not held then
    return 2
end
if string.byte(held) == 115 then -- 's'
    return 1
end
local difference = ARGV[1] - held
redis.call('HINCRBY', KEYS[1], 'used', difference)
redis.call('HINCRBY', KEYS[2], 'used', difference)
redis.call('SET', KEYS[3], 's' .. ARGV[1])
return 0
