//! The HTTP listener, which answers probes before the database is open.

use std::net::SocketAddr;

use axum::Router;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::app::{AppError, address, bind, stopped};
use crate::config::ServeArgs;
use echo_serve::http;
use echo_serve::http::startup::{current_router, startup_router};
use echo_serve::listener::{Connections, Listener};
use echo_serve::middleware::Middleware;
use echo_serve::tls::Encryption;

/// The running listener.
#[derive(Debug)]
pub(super) struct Asking {
    /// Where it listens.
    pub(super) address: SocketAddr,
    /// What it has seen.
    pub(super) connections: Connections,
    routes: watch::Sender<Router>,
    stop: watch::Sender<bool>,
    /// The one task.
    pub(super) tasks: JoinSet<()>,
}

impl Asking {
    /// Binds, and says to everybody that Echo is starting.
    pub(super) async fn start(
        args: &ServeArgs,
        (terms, encryption): (&Middleware, Encryption),
    ) -> Result<Self, AppError> {
        let listener = bind("--http-listen", args.http_listen).await?;
        let address = address(&listener)?;
        let connections = Connections::default();
        let listener = Listener::new(listener, args.bounds.listen(), connections.clone());
        let (routes, current) = watch::channel(startup_router(terms));
        let (stop, stopping) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let until = stopped(stopping);
        tasks.spawn(http::serve(
            listener,
            current_router(current),
            encryption,
            until,
        ));
        Ok(Self {
            address,
            connections,
            routes,
            stop,
            tasks,
        })
    }

    /// Answers with these routes from here on.
    pub(super) fn answer(&self, routes: Router) {
        let _starting = self.routes.send_replace(routes);
    }

    /// Stops listening and lets open questions finish.
    pub(super) async fn finish(&mut self) {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}
