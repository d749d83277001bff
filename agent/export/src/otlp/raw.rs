//! gRPC codec for requests that are encoded already.

use std::marker::PhantomData;

use bytes::{BufMut, Bytes};
use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic_prost::ProstCodec;

/// Codec that sends bytes and decodes a message of type `T`.
#[derive(Debug)]
pub(super) struct RawCodec<T>(PhantomData<T>);

impl<T> Default for RawCodec<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + Default + Send + 'static> Codec for RawCodec<T> {
    type Encode = Bytes;
    type Decode = T;
    type Encoder = RawEncoder;
    type Decoder = <ProstCodec<T, T> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        RawEncoder
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, T>::raw_decoder(BufferSettings::default())
    }
}

/// Encoder that writes the bytes unchanged.
#[derive(Debug)]
pub(super) struct RawEncoder;

impl Encoder for RawEncoder {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, dst: &mut EncodeBuf<'_>) -> Result<(), Status> {
        dst.put(item);
        Ok(())
    }
}
