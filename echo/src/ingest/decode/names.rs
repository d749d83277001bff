//! What the points of one request share, so that a name is kept once and not once per point.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::identity::printable;
use super::reject::RejectReason;
use crate::ids::{MetricName, Op};
use crate::model::event::Origin;

/// Most text of attributes that one request may unfold into, in bytes: attributes of a resource are repeated for
/// each of its points, which must not turn a small request into a huge one.
const MAX_ATTRS_BYTES_PER_REQUEST: usize = 32 * 1024 * 1024;

/// Texts and identities of one request.
#[derive(Debug)]
pub(super) struct Names<'a> {
    origins: HashSet<Arc<Origin>>,
    metrics: HashMap<&'a str, MetricName>,
    units: HashMap<&'a str, Arc<str>>,
    ops: HashMap<&'a str, Op>,
    attrs_left: usize,
}

impl Default for Names<'_> {
    fn default() -> Self {
        Self {
            origins: HashSet::new(),
            metrics: HashMap::new(),
            units: HashMap::new(),
            ops: HashMap::new(),
            attrs_left: MAX_ATTRS_BYTES_PER_REQUEST,
        }
    }
}

impl<'a> Names<'a> {
    pub(super) fn origin(&mut self, origin: Origin) -> Arc<Origin> {
        if let Some(known) = self.origins.get(&origin) {
            return Arc::clone(known);
        }
        let origin = Arc::new(origin);
        self.origins.insert(Arc::clone(&origin));
        origin
    }

    pub(super) fn metric(&mut self, name: &'a str) -> Result<MetricName, RejectReason> {
        if name.is_empty() {
            return Err(RejectReason::EmptyMetricName);
        }
        if let Some(known) = self.metrics.get(name) {
            return Ok(known.clone());
        }
        let metric: MetricName = name
            .parse()
            .map_err(|_unprintable| RejectReason::InvalidName)?;
        self.metrics.insert(name, metric.clone());
        Ok(metric)
    }

    pub(super) fn unit(&mut self, unit: &'a str) -> Result<Arc<str>, RejectReason> {
        let unit = printable(unit).ok_or(RejectReason::InvalidName)?;
        let known = self.units.entry(unit).or_insert_with(|| Arc::from(unit));
        Ok(Arc::clone(known))
    }

    pub(super) fn op(&mut self, op: &'a str) -> Option<Op> {
        if let Some(known) = self.ops.get(op) {
            return Some(known.clone());
        }
        let parsed: Op = op.parse().ok()?;
        self.ops.insert(op, parsed.clone());
        Some(parsed)
    }

    /// Sets aside `bytes` of attribute text, unless the request has used up its share.
    pub(super) fn spend_attrs(&mut self, bytes: usize) -> Result<(), RejectReason> {
        self.attrs_left = self
            .attrs_left
            .checked_sub(bytes)
            .ok_or(RejectReason::AttributesTooLarge)?;
        Ok(())
    }
}
