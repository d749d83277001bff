//! Packages, systemd units and Kubernetes manifests. The objects of each overlay as rendered by
//! `kubectl kustomize` (`testdata/deploy/`, verified by `clients::kubernetes`) are checked against
//! the pod security rules and the real programs.

mod addresses;
mod agent_pod;
pub(crate) mod chart;
mod commands;
mod container;
mod lake_pods;
mod manifests;
mod packages;
mod pod;
mod policy;
mod production_pod;
pub(crate) mod rendered;
mod site;
mod slurm;
mod units;
