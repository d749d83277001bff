//! Interner for the strings and origins of one request, so that a name is stored once and not once
//! per point.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use echo_core::ids::{ClusterId, CommId, JobId, MetricName, NodeId, Op, RoleId};
use echo_core::model::event::Origin;

use super::label::{identity, label, printable};
use super::point::Quantity;
use super::reject::RejectReason;
use super::wire::metrics::Metric;

/// Maximum size of the attributes of all events of one request, in bytes: attributes of a resource
/// are repeated for each of its points, which must not expand a small request without limit.
const MAX_ATTRS_BYTES_PER_REQUEST: usize = 32 * 1024 * 1024;

/// Maximum number of metrics cached by name and unit: the cache is searched linearly.
const MAX_RECENT: usize = 16;

/// Name, unit and quantity of a metric.
type Series = (MetricName, Arc<str>, Quantity);

/// The last text and its parsed value: neighbours mostly have the same text.
#[derive(Debug)]
struct Last<'a, T>(Option<(&'a str, T)>);

impl<T> Default for Last<'_, T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'a, T: Clone> Last<'a, T> {
    #[inline]
    fn get_or_parse(&mut self, text: &'a str, parse: impl FnOnce(&'a str) -> T) -> T {
        if let Some((last, parsed)) = &self.0
            && *last == text
        {
            return parsed.clone();
        }
        let parsed = parse(text);
        self.0 = Some((text, parsed.clone()));
        parsed
    }
}

/// Strings and origins of one request.
#[derive(Debug)]
pub(super) struct Interner<'a> {
    origins: HashSet<Arc<Origin>>,
    recent: Vec<((&'a str, &'a str), Series)>,
    metrics: HashMap<&'a str, MetricName>,
    units: HashMap<&'a str, Arc<str>>,
    ops: HashMap<&'a str, Op>,
    last_op: Last<'a, Option<Op>>,
    last_comm: Last<'a, Option<CommId>>,
    last_role: Last<'a, Option<RoleId>>,
    last_cluster: Last<'a, Option<ClusterId>>,
    last_node: Last<'a, Option<NodeId>>,
    last_job: Last<'a, Option<JobId>>,
    last_gpu_model: Last<'a, Option<Arc<str>>>,
    attrs_budget: usize,
}

impl Default for Interner<'_> {
    fn default() -> Self {
        Self {
            origins: HashSet::new(),
            recent: Vec::new(),
            metrics: HashMap::new(),
            units: HashMap::new(),
            ops: HashMap::new(),
            last_op: Last::default(),
            last_comm: Last::default(),
            last_role: Last::default(),
            last_cluster: Last::default(),
            last_node: Last::default(),
            last_job: Last::default(),
            last_gpu_model: Last::default(),
            attrs_budget: MAX_ATTRS_BYTES_PER_REQUEST,
        }
    }
}

impl<'a> Interner<'a> {
    pub(super) fn origin(&mut self, origin: Origin) -> Arc<Origin> {
        if let Some(known) = self.origins.get(&origin) {
            return Arc::clone(known);
        }
        let origin = Arc::new(origin);
        self.origins.insert(Arc::clone(&origin));
        origin
    }

    /// Returns the name, unit and quantity of a metric. Most resources of a request have the same
    /// metrics.
    pub(super) fn series(&mut self, metric: &Metric<'a>) -> Result<Series, RejectReason> {
        let key = (metric.name, metric.unit);
        if let Some((_, known)) = self.recent.iter().find(|(recent, _)| *recent == key) {
            return Ok(known.clone());
        }
        let series = (
            self.metric(metric.name)?,
            self.unit(metric.unit)?,
            Quantity::from_metric(metric),
        );
        if self.recent.len() == MAX_RECENT {
            self.recent.clear();
        }
        self.recent.push((key, series.clone()));
        Ok(series)
    }

    pub(super) fn metric(&mut self, name: &'a str) -> Result<MetricName, RejectReason> {
        if name.is_empty() {
            return Err(RejectReason::EmptyMetricName);
        }
        if let Some(known) = self.metrics.get(name) {
            return Ok(known.clone());
        }
        let metric: MetricName = identity(name).ok_or(RejectReason::InvalidName)?;
        self.metrics.insert(name, metric.clone());
        Ok(metric)
    }

    pub(super) fn unit(&mut self, unit: &'a str) -> Result<Arc<str>, RejectReason> {
        let unit = printable(unit).ok_or(RejectReason::InvalidName)?;
        let known = self.units.entry(unit).or_insert_with(|| Arc::from(unit));
        Ok(Arc::clone(known))
    }

    pub(super) fn op(&mut self, op: &'a str) -> Option<Op> {
        let ops = &mut self.ops;
        self.last_op.get_or_parse(op, |op| {
            if let Some(known) = ops.get(op) {
                return Some(known.clone());
            }
            let parsed: Op = identity(op)?;
            ops.insert(op, parsed.clone());
            Some(parsed)
        })
    }

    pub(super) fn comm(&mut self, comm: &'a str) -> Option<CommId> {
        self.last_comm.get_or_parse(comm, |comm| comm.parse().ok())
    }

    pub(super) fn role(&mut self, role: &'a str) -> Option<RoleId> {
        self.last_role.get_or_parse(role, |role| role.parse().ok())
    }

    pub(super) fn cluster(&mut self, cluster: &'a str) -> Option<ClusterId> {
        self.last_cluster.get_or_parse(cluster, identity)
    }

    pub(super) fn node(&mut self, node: &'a str) -> Option<NodeId> {
        self.last_node.get_or_parse(node, identity)
    }

    pub(super) fn job(&mut self, job: &'a str) -> Option<JobId> {
        self.last_job.get_or_parse(job, identity)
    }

    pub(super) fn gpu_model(&mut self, model: &'a str) -> Option<Arc<str>> {
        self.last_gpu_model.get_or_parse(model, label)
    }

    /// Takes `bytes` from the budget of attribute text; an error if it is exhausted.
    pub(super) fn reserve_attrs(&mut self, bytes: usize) -> Result<(), RejectReason> {
        self.attrs_budget = self
            .attrs_budget
            .checked_sub(bytes)
            .ok_or(RejectReason::AttributesTooLarge)?;
        Ok(())
    }
}
