//! What an answer is about: all jobs of the scope, or one.

use std::collections::BTreeSet;

use echo_core::ids::ClusterId;
use echo_core::units::GpuTime;

use super::allocation;
use crate::ToolError;
use crate::quality::{DataQuality, JobKey, Presence, job_name};
use crate::scope::Scope;

/// All jobs of the scope, or one.
pub(super) struct Subject<'a> {
    scope: &'a Scope<'a>,
    job: Option<(JobKey, Presence)>,
}

impl<'a> Subject<'a> {
    /// Finds the job of a name; all jobs without one.
    pub(super) async fn find(scope: &'a Scope<'a>, name: Option<&str>) -> Result<Self, ToolError> {
        let job = match name {
            Some(name) => Some(find_job(scope.presence().await?, name)?),
            None => None,
        };
        Ok(Self { scope, job })
    }

    /// The requested job.
    pub(super) fn job(&self) -> Option<&JobKey> {
        self.job.as_ref().map(|(job, _)| job)
    }

    /// Its cluster, or the requested one.
    pub(super) fn cluster(&self) -> Option<&ClusterId> {
        let of_job = self.job().map(|(cluster, _)| cluster);
        of_job.or(self.scope.cluster.as_ref())
    }

    /// Its ranks.
    pub(super) async fn presence(&self) -> Result<&Presence, ToolError> {
        match &self.job {
            Some((_, presence)) => Ok(presence),
            None => self.scope.presence().await,
        }
    }

    /// GPU time in which its ranks reported.
    pub(super) async fn allocated(&self) -> Result<GpuTime, ToolError> {
        match &self.job {
            Some((_, presence)) => Ok(presence.allocated()),
            None => allocation::allocated(self.scope).await,
        }
    }

    /// Coverage and recency of its data.
    pub(super) async fn quality(&self) -> Result<DataQuality, ToolError> {
        let all = self.scope.quality().await?;
        let Some((_, presence)) = &self.job else {
            return Ok(all);
        };
        let mut own = presence.quality(self.scope.context, self.scope.window);
        own.add_note(all.note);
        Ok(own)
    }
}

fn find_job(presence: &Presence, name: &str) -> Result<(JobKey, Presence), ToolError> {
    let jobs: BTreeSet<JobKey> = presence.by_job().into_keys().collect();
    let mut found = jobs.iter().filter(|key| job_name(key.1.as_ref()) == name);
    match (found.next(), found.next()) {
        (Some(job), None) => Ok((job.clone(), presence.of_job(job))),
        (Some(_), Some(_)) => {
            let message = "reported in several clusters; set cluster";
            Err(ToolError::invalid("job", message))
        }
        (None, _) => Err(ToolError::UnknownJob {
            job: name.to_owned(),
            known: presence.describe_ranks(),
        }),
    }
}
