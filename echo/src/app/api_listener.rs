//! API listener (HTTP), which answers probes before the database is open.

use std::net::SocketAddr;

use axum::Router;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::app::inputs::Inputs;
use crate::app::sockets::BoundSocket;
use crate::app::{AppError, stopped};
use crate::config::ServeArgs;
use echo_serve::http;
use echo_serve::http::startup::{current_router, startup_router};
use echo_serve::listener::{Connections, Listener};

/// The running API listener.
#[derive(Debug)]
pub(super) struct ApiListener {
    /// Local address.
    pub(super) address: SocketAddr,
    /// Connection counters.
    pub(super) connections: Connections,
    routes: watch::Sender<Router>,
    stop: watch::Sender<bool>,
    /// The accept task.
    pub(super) tasks: JoinSet<()>,
}

impl ApiListener {
    /// Listens, and answers every request with `starting`.
    pub(super) fn start(
        args: &ServeArgs,
        inputs: &Inputs,
        socket: BoundSocket,
    ) -> Result<Self, AppError> {
        let address = socket.address;
        let connections = Connections::default();
        let listener = Listener::new(socket.listen()?, args.bounds.listen(), connections.clone());
        let (routes, current) = watch::channel(startup_router(&inputs.middleware));
        let (stop, stopping) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let until = stopped(stopping);
        tasks.spawn(http::serve(
            listener,
            current_router(current),
            inputs.api_encryption.clone(),
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

    /// Replaces the routes.
    pub(super) fn set_routes(&self, routes: Router) {
        let _starting = self.routes.send_replace(routes);
    }

    /// Stops listening and waits for open requests.
    pub(super) async fn drain(&mut self) {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}
