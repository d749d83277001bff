-- What retention deleted, slice by slice, so that an answer about that time can say so.

CREATE TABLE dropped_rows (
    from_ns       BIGINT  NOT NULL,
    until_ns      BIGINT  NOT NULL,
    n_events      UBIGINT NOT NULL,
    last_event_id UBIGINT NOT NULL,    -- so that no number is ever given twice
    dropped_ns    BIGINT  NOT NULL,
    reason        VARCHAR NOT NULL
);

CREATE VIEW dropped_slices AS
SELECT from_ns, until_ns, n_events, dropped_ns, reason
FROM dropped_rows;

COMMENT ON VIEW dropped_slices IS 'Slices of received time whose events were deleted to keep the database within its limits.';
COMMENT ON COLUMN dropped_slices.from_ns IS 'Beginning of the slice on the clock of Echo, Unix nanoseconds, inclusive.';
COMMENT ON COLUMN dropped_slices.until_ns IS 'End of the slice, exclusive.';
COMMENT ON COLUMN dropped_slices.n_events IS 'Events deleted.';
COMMENT ON COLUMN dropped_slices.dropped_ns IS 'When the last of them was deleted, on the clock of Echo; Unix nanoseconds.';
COMMENT ON COLUMN dropped_slices.reason IS 'Which limit asked for it: age, size or floor.';

COMMENT ON VIEW verdict_history IS 'States of incidents. After a day the first, those that changed state, finding, rank, class, severity or provisional, and the last of each hour are kept; the others are dropped within the next hour. Columns as in verdicts.';
