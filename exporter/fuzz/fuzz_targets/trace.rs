//! Whatever bytes a trace holds, reading them ends, and each line that is read can be redacted, and written and read again.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use memprov::trace::{Form, Reader, Redactor, Writer};

fuzz_target!(|bytes: &[u8]| {
    let path = Path::new("fuzz");
    let Ok(reader) = Reader::new(bytes, path) else { return };
    let header = reader.header().clone();
    let mut redactor = Redactor::with_key([7; 16], |name| name.len() == 3);
    for line in reader.flatten() {
        let mut writer =
            Writer::new(Vec::new(), Form::Plain, path, &header).expect("memory takes all");
        writer.write(&line).expect("what was read is sound");
        let text = writer.finish().expect("memory takes all");
        let mut again = Reader::new(&*text, path).expect("the header was read before");
        assert_eq!(again.next().expect("one line was written").expect("it is sound"), line);
        redactor.line(line);
    }
});
