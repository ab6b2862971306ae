-- A UUID of version 7 (RFC 9562) for PostgreSQL before 18, which has uuidv7() of its own: 48 bits of milliseconds, 12 bits of
-- the fraction of the millisecond, 62 random bits. Ordered by microsecond; in no order within one, and by the server's clock.
CREATE SCHEMA IF NOT EXISTS {{schema}};

CREATE OR REPLACE FUNCTION {{schema}}.uuidv7() RETURNS uuid
  LANGUAGE plpgsql VOLATILE PARALLEL SAFE
  SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
  micro bigint := floor(date_part('epoch', clock_timestamp()) * 1000000)::bigint;
BEGIN
  RETURN (lpad(to_hex(micro / 1000), 12, '0')
    || '7' || lpad(to_hex(micro % 1000 * 4096 / 1000), 3, '0')
    -- The second half of a random UUID: its variant bits are the ones that version 7 has.
    || right(replace(gen_random_uuid()::text, '-', ''), 16))::uuid;
END
$body$;
COMMENT ON FUNCTION {{schema}}.uuidv7() IS 'a UUID of version 7';
