//! Senders, one for each kind of consumer.

use std::sync::Arc;

use crate::consumer::Consumer;
use crate::policy::Destination;

mod agents;
mod alertmanager;
mod http;
mod kubernetes;
mod pagerduty;
mod slack;
mod slurm;
mod time;
mod webhook;

/// Returns the sender for a destination.
pub fn sender(destination: &Destination) -> Arc<dyn Consumer> {
    match destination {
        Destination::Webhook(own) => Arc::new(webhook::WebhookSender::new(own.clone())),
        Destination::Slack(own) => Arc::new(slack::SlackSender::new(own.clone())),
        Destination::PagerDuty(own) => Arc::new(pagerduty::PagerDutySender::new(own.clone())),
        Destination::Alertmanager(own) => {
            Arc::new(alertmanager::AlertmanagerSender::new(own.clone()))
        }
        Destination::Kubernetes(own) => Arc::new(kubernetes::KubernetesSender::new(own.clone())),
        Destination::Slurm(own) => Arc::new(slurm::SlurmSender::new(own.clone())),
        Destination::Agents(_) => Arc::new(agents::AgentsSender),
    }
}

#[cfg(test)]
mod tests;
