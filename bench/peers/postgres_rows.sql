-- Rows that are only inserted; what is used is their sum over the window. An advisory lock of the tenant keeps reserves apart.
DROP SCHEMA IF EXISTS peer CASCADE;
CREATE SCHEMA peer;
SET search_path = peer;

CREATE TABLE budget (
    node integer PRIMARY KEY,
    max_micros bigint NOT NULL
);

-- kind: h what is held, s the correction to what it cost, o those of others before.
CREATE TABLE entry (
    hold bigint NOT NULL,
    kind "char" NOT NULL,
    period integer NOT NULL,
    tenant integer NOT NULL,
    team integer NOT NULL,
    micros bigint NOT NULL,
    PRIMARY KEY (hold, kind)
);
CREATE INDEX entry_window ON entry (tenant, period);

-- A window with 950 rows in it. The 50 pairs that then take place there add two each, so a reserve sums 1,000 in the middle.
CREATE FUNCTION begin_window(p_period integer, p_tenant integer, p_team integer) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO entry (hold, kind, period, tenant, team, micros)
    SELECT -(p_period * 1000 + i), 'o', p_period, p_tenant, p_team, 1 FROM generate_series(1, 950) AS i;
$$;

-- 0 admitted, 1 the team's limit, 2 the tenant's. A known id is an error of the primary key and changes nothing.
CREATE FUNCTION reserve(p_id bigint, p_period integer, p_tenant integer, p_team integer, p_micros bigint) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    tenant_used bigint;
    team_used bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(p_tenant);
    SELECT coalesce(sum(micros), 0), coalesce(sum(micros) FILTER (WHERE team = p_team), 0) INTO tenant_used, team_used
        FROM entry WHERE tenant = p_tenant AND period = p_period;
    IF team_used + p_micros > (SELECT max_micros FROM budget WHERE node = p_team) THEN
        RETURN 1;
    END IF;
    IF tenant_used + p_micros > (SELECT max_micros FROM budget WHERE node = p_tenant) THEN
        RETURN 2;
    END IF;
    INSERT INTO entry VALUES (p_id, 'h', p_period, p_tenant, p_team, p_micros);
    RETURN 0;
END $$;

-- 0 settled, 1 not known. Settled before is an error of the primary key and changes nothing.
CREATE FUNCTION settle(p_id bigint, p_micros bigint) RETURNS integer
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO entry SELECT hold, 's', period, tenant, team, p_micros - micros FROM entry WHERE hold = p_id AND kind = 'h';
    RETURN CASE WHEN FOUND THEN 0 ELSE 1 END;
END $$;

CREATE VIEW totals AS
SELECT coalesce(sum(micros), 0)::bigint AS tenant_micros,
       coalesce(sum(micros) FILTER (WHERE team = 2), 0)::bigint AS team_micros,
       count(*) FILTER (WHERE kind = 's') AS record_cnt
FROM entry WHERE kind <> 'o' AND tenant = 1;
