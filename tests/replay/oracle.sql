-- What the receipts of a replay must be, worked out from the trace and the policy alone, by another program than the one that
-- made them. run.sh has loaded
--   trace(line, input, output)  one row per good line; rowid - 1 is the row number of the ids
--   r(...)                      every receipt of the segment
-- Each statement prints what breaks its rule, after the rule's name. Nothing printed: all rules hold.
-- Empty text stands for null.

-- Of policy.yaml: prices, caps of capabilities whose basis is `cap`, limits.
CREATE TABLE price (model, input, cached, cache_write, output, longest);
INSERT INTO price VALUES
    ('ChatGPT', 1500000, '', '', 2000000, 4096),
    ('GPT-4', 30000000, '', '', 60000000, 4096),
    ('large', 3000000, 300000, 3750000, 15000000, 8192),
    ('mini', 150000, '', '', 600000, 2048),
    ('open', 90001, '', '', 270007, '');
CREATE TABLE bound (tenant, team, key, window, dimension, most, overdraft);
INSERT INTO bound VALUES
    ('bank', '', '', 'day', 'tokens', 2600000, 0),
    ('bank', '', '', 'month', 'cost', 60000000, 0),
    ('bank', '', '', 'lifetime', 'invocations', 100000, 0),
    ('bank', 'fraud', '', 'minute', 'invocations', 900, 0),
    ('bank', 'fraud', '', 'minute', 'tokens', 2500000, 0),
    ('bank', 'fraud', '', 'month', 'cost', 25000000, 0),
    ('bank', 'fraud', 'batch', 'hour', 'invocations', 150, 0),
    ('bank', 'fraud', 'live', 'day', 'cost', 4000000, 0),
    ('bank', 'fraud', 'live', 'day', 'tokens', 900000, 0),
    ('bank', 'desk', '', 'month', 'cost', 6000000, 500000),
    ('shop', '', '', 'day', 'cost', 11000000, 2000000),
    ('shop', '', '', 'month', 'cost', 50000000, 2000000),
    ('shop', '', '', 'month', 'tokens', 40000000, 0),
    ('shop', 'support', '', 'hour', 'tokens', 3000000, 0),
    ('lab', 'bulk', '', 'month', 'invocations', 500000, 0),
    ('lab', 'bulk', '', 'month', 'tokens', 2000000000, 0);

CREATE TABLE reservation AS
SELECT r.*, t.input AS row_input, t.output AS row_output, p.longest AS p_longest,
    p.input AS p_input, p.cached AS p_cached, p.cache_write AS p_cache_write, p.output AS p_output,
    CASE WHEN t.output = 0 THEN 'failure' ELSE 'success' END AS row_outcome,
    t.input + t.output AS row_tokens,
    (t.input * p.input + 999999) / 1000000 + (t.output * p.output + 999999) / 1000000 AS row_cost,
    t.input + r.max_output_tokens AS worst_tokens,
    (t.input * max(p.input, coalesce(nullif(p.cached, ''), 0), coalesce(nullif(p.cache_write, ''), 0)) + 999999) / 1000000
        + (r.max_output_tokens * p.output + 999999) / 1000000 + (p.cached <> '') + (p.cache_write <> '') AS worst_cost
FROM r LEFT JOIN trace t ON t.rowid = 1 + CAST(replace(r.id, rtrim(r.id, '0123456789'), '') AS INTEGER)
    LEFT JOIN price p ON p.model = r.model
WHERE r.kind = 'reservation';
CREATE INDEX reservation_seq ON reservation (seq);
CREATE TABLE closing AS SELECT * FROM r WHERE kind NOT IN ('epoch', 'policy', 'reservation');
CREATE INDEX closing_of ON closing (reservation_seq);

SELECT 'a reservation of no row of the trace', id FROM reservation WHERE row_input IS NULL OR p_input IS NULL;
SELECT 'two reservations of one row', id, count(*) FROM reservation GROUP BY id HAVING count(*) > 1;
SELECT 'a conflict', id FROM r WHERE conflict NOT IN ('0', 'f', 'false');
SELECT 'another kind of receipt than a replay makes', kind, count(*) FROM closing
WHERE kind NOT IN ('settlement', 'expiry', 'retention', 'late_settlement', 'dispute') GROUP BY kind;
SELECT 'another request than the row', id, input_tokens, row_input FROM reservation WHERE input_tokens <> row_input;
SELECT 'other prices than those of the policy', id FROM reservation
WHERE input_micros_per_mtok <> p_input OR output_micros_per_mtok <> p_output OR cached_input_micros_per_mtok <> p_cached
    OR cache_write_input_micros_per_mtok <> p_cache_write OR model_max_output_tokens <> p_longest;
SELECT 'not the worst case held', id, hold_tokens, worst_tokens, hold_cost_micros, worst_cost FROM reservation
WHERE hold_tokens <> (CASE capability WHEN 'label' THEN 9000 ELSE worst_tokens END) OR hold_cost_micros <> worst_cost
    OR held_tokens <> hold_tokens OR held_cost_micros <> hold_cost_micros OR held_invocations <> 1;
SELECT 'degraded without a cheaper model, or not by a team or tenant that degrades', id FROM reservation
WHERE admission = 'degrade' AND (model = model_asked OR model_asked = '' OR tenant = 'lab' OR team = 'fraud');

SELECT 'a closing of nothing', c.id FROM closing c LEFT JOIN reservation v ON v.seq = c.reservation_seq
WHERE v.seq IS NULL OR v.id <> c.id;
SELECT 'two closings', id, group_concat(kind) FROM closing WHERE kind <> 'late_settlement' AND late IN ('', '0', 'f', 'false')
GROUP BY id HAVING count(*) > 1;
SELECT 'late, and it had not expired', c.id FROM closing c
WHERE c.kind = 'late_settlement' AND NOT EXISTS (SELECT 1 FROM closing e
    WHERE e.reservation_seq = c.reservation_seq AND e.kind IN ('expiry', 'retention') AND e.seq < c.seq);
SELECT 'settled to something else than the row', c.id, c.actual_tokens, v.row_tokens, c.actual_cost_micros, v.row_cost
FROM closing c JOIN reservation v ON v.seq = c.reservation_seq
WHERE c.kind IN ('settlement', 'late_settlement', 'dispute')
    AND (c.actual_tokens <> v.row_tokens OR c.actual_cost_micros <> v.row_cost OR c.cost_source <> 'derived'
        OR c.usage_input_tokens <> v.row_input OR c.usage_output_tokens <> v.row_output OR c.outcome <> v.row_outcome);
SELECT 'released or overage wrong', c.id FROM closing c
WHERE c.kind IN ('settlement', 'late_settlement') AND (c.released_tokens <> max(0, c.hold_tokens - c.actual_tokens)
    OR c.released_cost_micros <> max(0, c.hold_cost_micros - c.actual_cost_micros)
    OR c.overage_tokens <> max(0, c.actual_tokens - c.hold_tokens)
    OR c.overage_cost_micros <> max(0, c.actual_cost_micros - c.hold_cost_micros));
SELECT 'overage on a team that fails on it', c.id FROM closing c
WHERE c.team = 'support' AND c.kind IN ('settlement', 'late_settlement') AND (c.overage_tokens > 0 OR c.overage_cost_micros > 0);
SELECT 'disputed and within its hold, or on a team that records', c.id FROM closing c
WHERE c.kind = 'dispute' AND (c.team <> 'support'
    OR (c.actual_tokens <= c.hold_tokens AND c.actual_cost_micros <= c.hold_cost_micros));
SELECT 'kept or let go against the policy', c.id, c.kind FROM closing c WHERE c.kind IN ('expiry', 'retention')
    AND c.kind <> (CASE WHEN c.team = 'fraud' OR (c.team = 'desk' AND c.dispatched IN ('1', 't', 'true'))
        THEN 'retention' ELSE 'expiry' END);

-- What all rows of one reservation leave charged, to the micro.
SELECT 'charged something else than the reservation came to', v.id, s.tokens, s.micros, s.calls
FROM reservation v JOIN (
    SELECT reservation_seq AS of_seq, sum(charged_tokens) AS tokens, sum(charged_cost_micros) AS micros,
        sum(charged_invocations) AS calls, sum(held_tokens) AS held_tokens, sum(held_cost_micros) AS held_micros,
        sum(held_invocations) AS held_calls, max(kind IN ('settlement', 'late_settlement')) AS settled,
        max(kind IN ('dispute', 'retention')) AS kept
    FROM closing GROUP BY 1) s ON s.of_seq = v.seq
WHERE s.calls <> 1 OR s.held_calls <> -1 OR s.held_tokens <> -v.hold_tokens OR s.held_micros <> -v.hold_cost_micros
    OR s.tokens <> (CASE WHEN s.settled THEN v.row_tokens WHEN s.kept THEN v.hold_tokens ELSE 0 END)
    OR s.micros <> (CASE WHEN s.settled THEN v.row_cost WHEN s.kept THEN v.hold_cost_micros ELSE 0 END);

-- No limit is passed by more than what calls came to above their holds, and the overdraft of who may.
SELECT 'oversold', b.tenant, b.team, b.key, b.window, b.dimension, w.amount, b.most
FROM bound b JOIN (
    SELECT b.rowid AS of_bound,
        CASE b.window WHEN 'minute' THEN window_ms / 60000 WHEN 'hour' THEN window_ms / 3600000
            WHEN 'day' THEN window_ms / 86400000 WHEN 'month' THEN strftime('%Y-%m', window_ms / 1000, 'unixepoch') END AS id,
        sum(CASE b.dimension WHEN 'invocations' THEN held_invocations + charged_invocations
            WHEN 'tokens' THEN held_tokens + charged_tokens ELSE held_cost_micros + charged_cost_micros END) AS amount,
        sum(CASE WHEN b.dimension = 'invocations' THEN 0 WHEN b.dimension = 'tokens' THEN CAST(overage_tokens AS INTEGER)
            ELSE CAST(overage_cost_micros AS INTEGER) END) AS overage
    FROM bound b JOIN r ON r.tenant = b.tenant AND (b.team = '' OR r.team = b.team) AND (b.key = '' OR r.key = b.key)
    GROUP BY 1, 2) w ON w.of_bound = b.rowid
WHERE w.amount > b.most + b.overdraft + w.overage OR w.amount < 0;
