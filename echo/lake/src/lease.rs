//! Lease on the maintenance of a lake: one instance at a time holds it. It passes on when its holder
//! has ended, or has not renewed it until its deadline.

use std::time::Duration;

use crate::error::LakeError;
use crate::location::quoted;
use crate::session::{CATALOG, Session};

/// Time after which a lease passes on that was not renewed: the host of its holder may be gone
/// without a trace.
const DEADLINE: Duration = Duration::from_mins(15);

/// The table, outside of the lake: a lease is not worth a snapshot.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS fleet_echo_leases (
    name     text PRIMARY KEY,
    holder   text NOT NULL,
    role     name NOT NULL,
    deadline timestamptz NOT NULL,
    done     timestamptz NOT NULL
)";

/// Operation in errors.
const DOING: &str = "taking the lease for maintenance";

/// A lease that this process holds. All clocks are that of `PostgreSQL`.
#[derive(Debug)]
pub(crate) struct Lease<'a> {
    session: &'a Session,
    holder: &'a str,
}

impl<'a> Lease<'a> {
    /// Takes the lease for the client `holder`; `None` if another holds it, or has finished the
    /// maintenance less than `every` ago.
    pub(crate) fn acquire(
        session: &'a Session,
        holder: &'a str,
        every: Duration,
    ) -> Result<Option<Self>, LakeError> {
        let lease = Self { session, holder };
        if !session.is_postgres {
            // One process at a time has the file of a catalog open.
            return Ok(Some(lease));
        }
        lease.execute(TABLE)?;
        let holder = quoted(holder);
        let (seconds, every) = (DEADLINE.as_secs(), every.as_secs_f64());
        lease.execute(&format!(
            "INSERT INTO fleet_echo_leases AS held
             VALUES ('maintenance', {holder}, current_user, clock_timestamp() + interval '{seconds} s', '-infinity')
             ON CONFLICT (name) DO UPDATE
             SET holder = excluded.holder, role = excluded.role, deadline = excluded.deadline
             WHERE held.done <= clock_timestamp() - interval '{every} s'
               AND (held.holder = excluded.holder
                    OR held.deadline < clock_timestamp()
                    -- Other roles may not see the name of the client.
                    OR (held.role = excluded.role
                        AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = held.holder)))"
        ))?;
        // A holder that has just finished keeps its name in the table.
        let is_due = format!("done <= clock_timestamp() - interval '{every} s'");
        Ok(lease.is_held(&is_due)?.then_some(lease))
    }

    /// Extends the lease. Returns false if another has taken it.
    pub(crate) fn renew(&self) -> Result<bool, LakeError> {
        if !self.session.is_postgres {
            return Ok(true);
        }
        let seconds = DEADLINE.as_secs();
        self.update(&format!(
            "deadline = clock_timestamp() + interval '{seconds} s'"
        ))?;
        self.is_held("true")
    }

    /// Ends the lease. If the maintenance is not finished, any instance may continue it at once.
    pub(crate) fn release(self, is_finished: bool) -> Result<(), LakeError> {
        if !self.session.is_postgres {
            return Ok(());
        }
        self.update(if is_finished {
            "deadline = clock_timestamp(), done = clock_timestamp()"
        } else {
            "deadline = clock_timestamp()"
        })
    }

    fn update(&self, changes: &str) -> Result<(), LakeError> {
        let holder = quoted(self.holder);
        self.execute(&format!(
            "UPDATE fleet_echo_leases SET {changes} WHERE name = 'maintenance' AND holder = {holder}"
        ))
    }

    fn is_held(&self, condition: &str) -> Result<bool, LakeError> {
        let held = format!(
            "SELECT holder FROM fleet_echo_leases WHERE name = 'maintenance' AND holder = {} AND {condition}",
            quoted(self.holder)
        );
        let held = format!(
            "SELECT count(*)::UBIGINT FROM postgres_query({}, {})",
            quoted(CATALOG),
            quoted(&held)
        );
        let rows: Vec<u64> = self.session.rows(DOING, &held, [], |row| row.get(0))?;
        Ok(rows == [1])
    }

    fn execute(&self, sql: &str) -> Result<(), LakeError> {
        let call = format!(
            "CALL postgres_execute({}, {})",
            quoted(CATALOG),
            quoted(sql)
        );
        self.session.run(DOING, &call)
    }
}
