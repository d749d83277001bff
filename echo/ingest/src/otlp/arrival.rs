//! A body while it arrives: it takes up memory before it is a message.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use tokio::time::{Sleep, sleep};
use tokio_stream::Stream;
use tonic::Status;

use super::failed;
use crate::accept::{Ingest, IngestError};
use crate::admit::Arriving;

/// The pieces of a body, cut off when there is no room for more of them or when they take too long.
pub(super) struct Arrival {
    pieces: BodyDataStream,
    room: Arriving,
    deadline: Pin<Box<Sleep>>,
    ingest: Ingest,
    number: u64,
    answered: Arc<AtomicBool>,
}

impl Arrival {
    /// The body of the request with this number, followed from now on. `answered` is set when it is cut off.
    pub(super) fn of(
        body: tonic::body::Body,
        (ingest, room): (&Ingest, Arriving),
        (number, answered): (u64, &Arc<AtomicBool>),
    ) -> tonic::body::Body {
        let arrival = Self {
            pieces: Body::new(body).into_data_stream(),
            room,
            deadline: Box::pin(sleep(ingest.arrival_deadline())),
            ingest: ingest.clone(),
            number,
            answered: Arc::clone(answered),
        };
        tonic::body::Body::new(Body::from_stream(arrival))
    }

    /// The end of a body that is not read on.
    fn cut_off(&self, why: &IngestError) -> Status {
        self.answered.store(true, Ordering::Relaxed);
        failed(&self.ingest, why, self.number)
    }
}

impl Stream for Arrival {
    type Item = Result<Bytes, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // First, so that a steady trickle does not keep the deadline from being looked at.
        if self.deadline.as_mut().poll(cx).is_ready() {
            let after = self.ingest.arrival_deadline();
            return Poll::Ready(Some(Err(self.cut_off(&IngestError::Slow { after }))));
        }
        let Some(piece) = ready!(Pin::new(&mut self.pieces).poll_next(cx)) else {
            return Poll::Ready(None);
        };
        let counted = match piece {
            Ok(piece) => match self.room.add(piece.len()) {
                Ok(()) => Ok(piece),
                Err(full) => Err(self.cut_off(&full.into())),
            },
            Err(error) => Err(Status::from_error(error.into_inner())),
        };
        Poll::Ready(Some(counted))
    }
}
