//! What ships for Kubernetes: the objects of each overlay as `kubectl kustomize` renders them (`testdata/deploy/`, kept in step by
//! `clients::kubernetes`), held against the rules of pod security and against the real programs.

mod agent_pod;
mod container;
mod manifests;
mod pod;
mod policy;
mod production_pod;
pub(crate) mod rendered;
mod site;
mod units;
