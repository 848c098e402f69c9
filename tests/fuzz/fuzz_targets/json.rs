//! JSON in columns: whatever parses can be serialised, and a round trip of the serialised text is
//! stable.

#![no_main]

use bbs_fuzz::model::routes::Routes;
use bbs_fuzz::model::tags;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    if let Ok(routes) = Routes::from_json(text) {
        let written = Routes::to_json(routes.as_ref()).expect("what parses can be serialised");
        let again = Routes::from_json(&written).expect("what was serialised parses");
        // Not compared with the input: a route's own JSON is stored with Go's escapes for HTML.
        assert_eq!(
            Routes::to_json(again.as_ref()),
            Ok(written),
            "serialisation is stable"
        );
    }
    if let Ok(read) = tags::metric_tags_from_json(text) {
        assert_eq!(
            tags::metric_tags_from_json(&tags::metric_tags_to_json(&read)),
            Ok(read)
        );
    }
    if let Ok(read) = tags::texts_from_json(text) {
        assert_eq!(tags::texts_from_json(&tags::texts_to_json(&read)), Ok(read));
    }
    let _ = tags::text_map_from_json(text);
    let _ = tags::hostnames_from_json(text);
});
