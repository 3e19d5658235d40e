//! Numbers and texts of a file's header and features, one after the other. Little-endian, as the recording.

/// What is left to read. Every reading checks the length first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take(4)?.first_chunk().copied().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take(8)?.first_chunk().copied().map(u64::from_le_bytes)
    }

    /// `perf_header_string`: a length of 4 bytes, then as many bytes, padded with zeros.
    pub(super) fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.u32()?).ok()?;
        Some(text(self.take(length)?))
    }
}

/// Bytes up to the first zero; what is not UTF-8 is replaced.
pub(super) fn text(bytes: &[u8]) -> String {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}
