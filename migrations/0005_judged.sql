-- How far the detector had come, so that it goes on there after a restart instead of judging all that is stored again.

CREATE TABLE judged_rows (
    event_id UBIGINT NOT NULL    -- number of the last event that the stored conclusions rest on
);

-- Whatever lies in a database of an earlier version was judged by it.
INSERT INTO judged_rows
SELECT greatest(
    (SELECT coalesce(max(event_id), 0) FROM event_rows),
    (SELECT coalesce(max(last_event_id), 0) FROM dropped_rows));

CREATE VIEW judged AS
SELECT max(event_id) AS event_id
FROM judged_rows;

COMMENT ON VIEW judged IS 'How far the detector has come: what it concluded is stored, and rests on the events up to this number.';
COMMENT ON COLUMN judged.event_id IS 'Number of the last event judged.';
