//! What a question is answered with: who asks, and what holds at this moment.

use std::sync::Arc;

use echo_access::Principal;
use echo_tools::ToolContext;
use echo_tools::rates::Rates;
use tokio::sync::watch;

/// Makes the context of each question. Clones share everything.
#[derive(Debug, Clone)]
pub struct Contexts {
    usual: ToolContext,
    rates: watch::Receiver<Arc<Rates>>,
}

impl Contexts {
    /// Contexts like `usual`, with the prices that are in force when a question is asked.
    pub const fn new(usual: ToolContext, rates: watch::Receiver<Arc<Rates>>) -> Self {
        Self { usual, rates }
    }

    /// The context of a question that this principal asks.
    pub fn of(&self, caller: &Arc<Principal>) -> ToolContext {
        ToolContext {
            rates: Arc::clone(&self.rates.borrow()),
            caller: Arc::clone(caller),
            ..self.usual.clone()
        }
    }

    /// What is the same whoever asks.
    pub const fn usual(&self) -> &ToolContext {
        &self.usual
    }
}

impl From<ToolContext> for Contexts {
    fn from(usual: ToolContext) -> Self {
        let (_, rates) = watch::channel(Arc::clone(&usual.rates));
        Self { usual, rates }
    }
}
