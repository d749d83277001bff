use serde_json::json;

use super::*;

#[test]
fn plain_data_of_protocol_2_and_4_is_read() {
    // pickle.dumps({"a": [1, -2, 300, 2**40, (True, None)], 7: 0.5}, protocol)
    let two = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\xfe\xff\xff\xffM\x2c\x01\x8a\x06\x00\x00\x00\x00\x00\x01\x88N\x86q\x03eK\x07G?\xe0\x00\x00\x00\x00\x00\x00u.";
    let four = b"\x80\x04\x95\x2a\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01J\xfe\xff\xff\xffM\x2c\x01\x8a\x06\x00\x00\x00\x00\x00\x01\x88N\x86\x94eK\x07G?\xe0\x00\x00\x00\x00\x00\x00u.";
    let expected = json!({ "a": [1, -2, 300, 1_u64 << 40, [true, null]], "7": 0.5 });
    for bytes in [&two[..], &four[..]] {
        assert!(is_pickle(bytes));
        assert_eq!(read(bytes), Ok(expected.clone()));
    }
}

#[test]
fn a_list_that_grows_after_it_was_stored_has_its_members_at_each_place() {
    // l = []; d = (l, l); l.append(1)
    let bytes = b"\x80\x02]q\x00K\x01ah\x00\x86.";
    assert_eq!(read(bytes), Ok(json!([[1], [1]])));
}

#[test]
fn a_global_is_refused_by_its_name() {
    let old = b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.";
    let new = b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02ls\x85R.";
    assert_eq!(read(old), Err(PickleError::Global("os.system".to_owned())));
    assert_eq!(
        read(new),
        Err(PickleError::Global("posix.system".to_owned()))
    );
    let call = PickleError::Instruction(b'R', 3);
    assert_eq!(read(b"\x80\x02NR."), Err(call));
}

#[test]
fn a_pickle_that_multiplies_or_contains_itself_is_refused() {
    // Each list holds the one before ten times: 10^9 values from some hundred bytes.
    let mut bytes = b"\x80\x02]q\x00K\x01a".to_vec();
    for level in 0..9_u8 {
        bytes.push(b'(');
        bytes.extend([b'h', level].repeat(10));
        bytes.extend([b'l', b'q', level + 1]);
    }
    bytes.push(b'.');
    assert_eq!(read(&bytes), Err(PickleError::TooLarge));
    assert_eq!(read(b"\x80\x02]q\x00h\x00a."), Err(PickleError::TooLarge));
}

#[test]
fn a_pickle_that_multiplies_a_long_text_is_refused() {
    // A list, or the keys of a dictionary, that refer to one text of 64 KiB a thousand times.
    let members = [(b']', &b"h\x00"[..], b'e'), (b'}', b"h\x00N", b'u')];
    for (container, reference, end) in members {
        let mut bytes = b"\x80\x02X\x00\x00\x01\x00".to_vec();
        bytes.extend(b"a".repeat(1 << 16));
        bytes.extend([b'q', 0, b'0', container, b'(']);
        bytes.extend(reference.repeat(1_000));
        bytes.extend([end, b'.']);
        assert_eq!(read(&bytes), Err(PickleError::TooLarge));
    }
}

#[test]
fn damage_is_an_error() {
    let cases: [(&[u8], PickleError); 6] = [
        (b"", PickleError::Truncated),
        (b"\x80\x02X\xff\xff\xff\xffa", PickleError::Truncated),
        (b"\x80\x02e.", PickleError::Damaged(3)),
        (b"\x80\x02h\x05.", PickleError::Damaged(4)),
        (b"\x80\x02Nr\xff\xff\xff\x7f.", PickleError::Damaged(8)),
        (b"\x80\x02}(K\x01u.", PickleError::Damaged(8)),
    ];
    for (bytes, error) in cases {
        assert_eq!(read(bytes), Err(error), "{bytes:?}");
    }
}
