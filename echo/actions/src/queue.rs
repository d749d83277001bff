//! Queue of deliveries: in order for each target, one at a time for each consumer, with retries.
//!
//! An attempt is counted in the state before it is made. A process that ends during an attempt
//! makes it again after its restart, with the same idempotency key.

use std::collections::BTreeSet;
use std::time::Duration;

use echo_core::units::Nanos;

use crate::consumer::DeliveryError;
use crate::notice::Phase;
use crate::policy::{Mode, Policy};
use crate::record::{Outcome, Record};
use crate::state::{Delivery, State};

/// Age at which a delivery is given up.
pub const GIVE_UP_AFTER: Duration = Duration::from_hours(24);

/// Begins an attempt of the next due delivery of each consumer that has none in flight.
pub fn begin_due(state: &mut State, now: Nanos) -> Vec<Delivery> {
    let in_flight = state.queue.iter().filter(|one| one.is_in_flight);
    let mut busy: BTreeSet<String> = in_flight.map(|one| one.consumer.clone()).collect();
    let mut earlier: BTreeSet<(String, String)> = BTreeSet::new();
    let mut begun = Vec::new();
    for delivery in &mut state.queue {
        let target = (delivery.consumer.clone(), delivery.target.clone());
        // Later deliveries for a target wait for the first one.
        let is_first = earlier.insert(target);
        let is_due = is_first && delivery.due_at <= now.value();
        if is_due && busy.insert(delivery.consumer.clone()) {
            delivery.attempts += 1;
            delivery.is_in_flight = true;
            begun.push(delivery.clone());
        }
    }
    begun
}

/// Records the result of an attempt; `delay` is the time before the next one. Returns `None` if the
/// delivery is no longer queued.
pub fn complete(
    state: &mut State,
    key: &str,
    result: Result<String, DeliveryError>,
    delay: Duration,
    now: Nanos,
) -> Option<Record> {
    let index = state.queue.iter().position(|one| one.key == key)?;
    let delivery = state.queue.get_mut(index)?;
    delivery.is_in_flight = false;
    let age_ms = now.millis_since(Nanos::new(delivery.planned_at));
    let (outcome, detail) = match result {
        Ok(detail) => (Outcome::Sent, detail),
        Err(error) if error.is_permanent => (Outcome::Rejected, error.message),
        Err(error) if age_ms > GIVE_UP_AFTER.as_secs_f64() * 1e3 => {
            (Outcome::Failed, error.message)
        }
        Err(error) => {
            delivery.due_at = now.after(error.retry_after.unwrap_or(delay)).value();
            let record = Record::of_delivery(delivery, Mode::Act, Outcome::Retried, error.message);
            return Some(record);
        }
    };
    let delivery = state.queue.remove(index);
    if outcome == Outcome::Rejected && delivery.phase == Phase::Raised {
        let action = state
            .open
            .iter_mut()
            .find(|one| one.consumer == delivery.consumer && one.target == delivery.target);
        if let Some(action) = action {
            action.is_applied = false;
        }
    }
    Some(Record::of_delivery(&delivery, Mode::Act, outcome, detail))
}

/// Withdraws what a later delivery makes needless: for a node whose end is queued, everything
/// before it that is not in flight. Notifications of incidents are all sent.
pub fn withdraw_overtaken(state: &mut State, policy: &Policy) -> Vec<Record> {
    let is_per_node = |consumer: &str| {
        let known = policy.consumers.get(consumer);
        known.is_some_and(|known| known.destination.is_per_node())
    };
    let mut ended: BTreeSet<(String, String)> = BTreeSet::new();
    let mut records = Vec::new();
    let mut kept = Vec::with_capacity(state.queue.len());
    for delivery in std::mem::take(&mut state.queue).into_iter().rev() {
        let target = (delivery.consumer.clone(), delivery.target.clone());
        if ended.contains(&target) && !delivery.is_in_flight {
            let why = "its end is queued";
            records.push(Record::of_delivery(
                &delivery,
                Mode::Act,
                Outcome::Cancelled,
                why,
            ));
            continue;
        }
        if delivery.phase == Phase::Cleared && is_per_node(&delivery.consumer) {
            ended.insert(target);
        }
        kept.push(delivery);
    }
    kept.reverse();
    state.queue = kept;
    records
}

#[cfg(test)]
mod tests;
