//! Pool of connections for queries. A query is interrupted when its caller stops waiting.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::record_batch::RecordBatch;
use duckdb::{Connection, InterruptHandle, params_from_iter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task;

use crate::StoreError;
use crate::duckdb::batches;
use crate::duckdb::engine::{EngineResult, engine};
use crate::duckdb::fatal::Fatal;
use crate::duckdb::lock::Lock;
use crate::duckdb::query::Query;
use crate::duckdb::read_gate::ReadGate;
use crate::duckdb::redaction::Hidden;

/// Pool of read-only connections.
#[derive(Debug)]
pub(super) struct ConnectionPool {
    idle: Arc<Mutex<Vec<Reader>>>,
    permits: Arc<Semaphore>,
    count: u32,
    gate: Arc<ReadGate>,
    fatal: Fatal,
    hidden: Hidden,
}

/// Read-only connection. Keeps the lock of the database while it lives.
#[derive(Debug)]
pub(super) struct Reader {
    /// Connection.
    pub(super) connection: Connection,
    _lock: Arc<Lock>,
}

impl Reader {
    /// Passes the batches of rows of the result to `each`, one after the other.
    pub(super) fn each_batch(
        &self,
        query: &Query,
        mut with: impl FnMut(&RecordBatch) -> EngineResult<()>,
    ) -> EngineResult<()> {
        let mut statement = self.connection.prepare(&query.sql)?;
        for batch in batches::stream(&mut statement, params_from_iter(query.values.iter()))? {
            with(&batch?)?;
        }
        Ok(())
    }
}

impl ConnectionPool {
    /// Opens `count` connections beside the one given.
    pub(super) fn new(
        connection: &Connection,
        count: u32,
        lock: &Arc<Lock>,
        gate: &Arc<ReadGate>,
        fatal: &Fatal,
    ) -> EngineResult<Self> {
        let clone = |_| connection.try_clone();
        let clones = (0..count).map(clone).collect::<EngineResult<_>>()?;
        Ok(Self::from_connections(clones, lock, gate, fatal))
    }

    /// Pool of these connections.
    pub(super) fn from_connections(
        connections: Vec<Connection>,
        lock: &Arc<Lock>,
        gate: &Arc<ReadGate>,
        fatal: &Fatal,
    ) -> Self {
        let reader = |connection| Reader {
            connection,
            _lock: Arc::clone(lock),
        };
        let idle: Vec<_> = connections.into_iter().map(reader).collect();
        let count = u32::try_from(idle.len()).unwrap_or(u32::MAX);
        Self {
            permits: Arc::new(Semaphore::new(idle.len())),
            idle: Arc::new(Mutex::new(idle)),
            count,
            gate: Arc::clone(gate),
            fatal: fatal.clone(),
            hidden: Hidden::default(),
        }
    }

    /// Hides credentials in errors.
    pub(super) fn hiding(self, hidden: &Hidden) -> Self {
        Self {
            hidden: hidden.clone(),
            ..self
        }
    }

    /// Runs a query on a blocking thread; `doing` names it in errors.
    #[expect(
        clippy::significant_drop_tightening,
        reason = "the connection moves to the thread that runs the read"
    )]
    pub(super) async fn run<T: Send + 'static>(
        &self,
        doing: &'static str,
        read: impl FnOnce(&Reader) -> EngineResult<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let connection = self.acquire().await?;
        let waiting = InterruptOnDrop(Arc::clone(&connection.query));
        let answer = task::spawn_blocking(move || connection.run(read)).await;
        drop(waiting);
        match answer {
            Ok(answer) => answer.map_err(|error| {
                self.fatal.record(&error.to_string());
                self.hidden.in_error(engine(doing)(error))
            }),
            Err(failed) => Err(StoreError::Engine {
                doing,
                reason: failed.to_string(),
            }),
        }
    }

    /// Runs a query and collects what `read` finds in each batch of its rows; `doing` names it in
    /// errors.
    pub(super) async fn collect<C, T>(
        &self,
        doing: &'static str,
        query: Query,
        read: fn(&RecordBatch) -> EngineResult<Vec<T>>,
    ) -> Result<C, StoreError>
    where
        C: Default + Extend<T> + Send + 'static,
        T: 'static,
    {
        let read = move |reader: &Reader| {
            let mut found = C::default();
            reader.each_batch(&query, |batch| {
                found.extend(read(batch)?);
                Ok(())
            })?;
            Ok(found)
        };
        self.run(doing, read).await
    }

    async fn acquire(&self) -> Result<PooledConnection, StoreError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.map_err(|_closed| StoreError::Closed)?;
        let reader = lock(&self.idle).pop().ok_or(StoreError::Closed)?;
        Ok(PooledConnection {
            query: Arc::new(RunningQuery {
                running: Mutex::new(true),
                interrupt: reader.connection.interrupt_handle(),
            }),
            reader: Some(reader),
            idle: Arc::clone(&self.idle),
            gate: Arc::clone(&self.gate),
            _permit: permit,
        })
    }

    /// Waits for running queries, and accepts none after them.
    pub(super) async fn close(&self) {
        let all = self.permits.acquire_many(self.count).await;
        self.permits.close();
        lock(&self.idle).clear();
        drop(all);
    }
}

/// A query, and whether it is running and its caller still waits for the result.
struct RunningQuery {
    running: Mutex<bool>,
    interrupt: Arc<InterruptHandle>,
}

/// Interrupts the query when dropped before it has finished.
struct InterruptOnDrop(Arc<RunningQuery>);

impl Drop for InterruptOnDrop {
    fn drop(&mut self) {
        // While the flag is locked the connection cannot start another query, which this would
        // interrupt instead.
        let mut running = lock(&self.0.running);
        if std::mem::take(&mut *running) {
            self.0.interrupt.interrupt();
        }
    }
}

/// Connection checked out of the pool. Returned on drop, including after a panic.
struct PooledConnection {
    reader: Option<Reader>,
    idle: Arc<Mutex<Vec<Reader>>>,
    gate: Arc<ReadGate>,
    query: Arc<RunningQuery>,
    _permit: OwnedSemaphorePermit,
}

impl PooledConnection {
    fn run<T>(self, read: impl FnOnce(&Reader) -> EngineResult<T>) -> EngineResult<T> {
        let _reading = self.gate.enter();
        match &self.reader {
            // The caller may have stopped waiting while the gate was closed.
            Some(reader) if *lock(&self.query.running) => read(reader),
            _ => Err(duckdb::Error::InvalidQuery),
        }
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        *lock(&self.query.running) = false;
        if let Some(reader) = self.reader.take() {
            lock(&self.idle).push(reader);
        }
    }
}

// No code that holds one of these locks can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
