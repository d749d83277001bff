//! Kubernetes manifests: the objects of each overlay as rendered by `kubectl kustomize`
//! (`testdata/deploy/`, verified by `clients::kubernetes`), checked against the pod security rules
//! and the real programs.

mod agent_pod;
mod container;
mod manifests;
mod pod;
mod policy;
mod production_pod;
pub(crate) mod rendered;
mod site;
mod units;
