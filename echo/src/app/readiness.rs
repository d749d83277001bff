//! What a command that started an instance needs to know of it: whether it accepts events, whether
//! it has analysed them, and its policies.

use std::sync::Arc;

use echo_core::policy_table::PolicyTable;
use echo_store::EventStore;
use echo_store::readiness::NotReadyReason;
use tokio::sync::watch;

use crate::app::App;

impl App {
    /// Policies as they are pushed to agents.
    pub fn policies(&self) -> watch::Receiver<Arc<PolicyTable>> {
        self.policies.clone()
    }

    /// Returns the reasons why no events are accepted at the moment.
    pub fn not_ready_reasons(&self) -> Vec<NotReadyReason> {
        self.store.not_ready_reasons()
    }

    /// Waits until the detector has processed all events committed at the time of the call.
    pub async fn wait_until_judged(&self) {
        let committed = *self.store.committed().borrow();
        let mut judged = self.judged.clone();
        // The channel closes only on shutdown, when there is nothing left to wait for.
        let _ended = judged.wait_for(|id| *id >= committed).await;
    }
}
