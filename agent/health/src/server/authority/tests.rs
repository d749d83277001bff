use proptest::prelude::*;

use crate::server::authority::frames::Frames;
use crate::server::tests::grpcio;

/// Corrects a whole connection.
fn corrected(mut connection: Vec<u8>) -> Vec<u8> {
    Frames::default().correct(connection.iter_mut());
    connection
}

/// Preface, and frames of these kinds, flags and payloads.
fn connection(frames: &[(u8, u8, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    for (kind, flags, payload) in frames {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        bytes.extend(&length[1..]);
        bytes.extend([*kind, *flags, 0, 0, 0, 1]);
        bytes.extend(payload);
    }
    bytes
}

/// A text, not in Huffman's code, with a length of one or two bytes.
fn text(bytes: &[u8]) -> Vec<u8> {
    let mut text = match u8::try_from(bytes.len()).unwrap() {
        length @ ..127 => vec![length],
        length => vec![127, length - 127],
    };
    text.extend(bytes);
    text
}

/// A field whose name is spelled out.
fn spelled(name: &str, value: &[u8]) -> Vec<u8> {
    [vec![0x40], text(name.as_bytes()), text(value)].concat()
}

/// An authority whose name is that of the static table, by the forms of a literal field.
fn authorities(value: &[u8]) -> [Vec<u8>; 4] {
    let by_index = [0x41, 0x01, 0x11].map(|first| [vec![first], text(value)].concat());
    let [indexed, plain, never] = by_index;
    [indexed, plain, never, spelled(":authority", value)]
}

/// Fields before and after an authority, none of which may change.
fn surrounded(authority: &[u8]) -> Vec<u8> {
    let before = [
        vec![0x3f, 0xe1, 0x1f, 0x83, 0xff, 0x01],
        spelled(":path", b"/a%2Fb"),
    ];
    let after = [
        spelled("a:uthority", b"%2F"),
        vec![0x04, 0x83, 0x25, 0x25, 0x25],
    ];
    [before.concat(), authority.to_vec(), after.concat()].concat()
}

#[test]
fn the_path_of_a_socket_becomes_a_name_of_the_same_length() {
    let (path, name) = (b"run%2Ffleet%3A1:2%2Fa.sock", b"run-2Ffleet-3A1-2-2Fa.sock");
    for (sent, expected) in authorities(path).iter().zip(&authorities(name)) {
        let frame = |fields: &[u8]| connection(&[(1, 4, surrounded(fields))]);
        assert_eq!(corrected(frame(sent)), frame(expected));
    }
}

#[test]
fn padding_priority_and_continuations_are_not_fields() {
    let frames = |authority: &[u8]| {
        let block = surrounded(&spelled(":authority", authority));
        let (first, rest) = block.split_at(45);
        let padded = [&[3, 0x41, 2, b'%', b'%', 9], first, &[0x41, 1, b'%']].concat();
        let data = spelled(":authority", b"%2F");
        connection(&[
            (1, 0x28, padded),
            (9, 0, Vec::new()),
            (9, 4, rest.to_vec()),
            (0, 1, data),
        ])
    };
    assert_eq!(corrected(frames(b"a%2Fb")), frames(b"a-2Fb"));
}

#[test]
fn each_request_has_fields_of_its_own() {
    let cut_off = vec![0x41, 100, b'a'];
    let frames = |authority: &[u8]| {
        let next = authorities(authority)[0].clone();
        connection(&[(1, 4, cut_off.clone()), (1, 4, next)])
    };
    assert_eq!(corrected(frames(b"%2Fa")), frames(b"-2Fa"));
}

#[test]
fn huffman_code_and_endless_numbers_pass() {
    let coded = vec![0x41, 0x83, b'%', b'%', b'%'];
    let endless = vec![0x41, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, b'%', b'%'];
    let sent = connection(&[(1, 4, coded), (1, 4, endless)]);
    assert_eq!(corrected(sent.clone()), sent);
}

proptest! {
    #[test]
    fn bytes_may_come_in_any_pieces(
        garbage in any::<Option<Vec<u8>>>(),
        sizes in prop::collection::vec(1..40_usize, 1..20),
    ) {
        // Garbage begins with a header of a request.
        let frame = |bytes| [connection(&[]), vec![0, 0, 250, 1, 0x28, 0, 0, 0, 1], bytes].concat();
        let sent = garbage.map_or_else(grpcio, frame);
        let mut pieces = sent.clone();
        let mut frames = Frames::default();
        let mut rest = pieces.as_mut_slice();
        for size in sizes.iter().cycle() {
            let (piece, others) = rest.split_at_mut(rest.len().min(*size));
            frames.correct(piece.iter_mut());
            rest = others;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(pieces, corrected(sent));
    }

    #[test]
    fn any_path_becomes_an_authority_that_is_accepted(path in "[%/][ -~é]{0,60}") {
        let sent = authorities(path.as_bytes());
        for sent in sent {
            let (first, _path) = sent.split_at(sent.len() - path.len());
            let all = corrected(connection(&[(1, 4, sent.clone())]));
            let (before, authority) = all.split_at(all.len() - path.len());
            prop_assert!(before.ends_with(first));
            let authority = tonic::codegen::http::uri::Authority::try_from(authority);
            prop_assert!(authority.is_ok(), "{authority:?}");
        }
    }

    #[test]
    fn a_valid_authority_passes(host in "[a-z0-9.-]{1,40}|\\[::1\\]", port in any::<Option<u16>>()) {
        let port = port.map(|port| format!(":{port}"));
        let authority = host + &port.unwrap_or_default();
        for sent in authorities(authority.as_bytes()) {
            let sent = connection(&[(1, 4, sent)]);
            prop_assert_eq!(corrected(sent.clone()), sent);
        }
    }
}
