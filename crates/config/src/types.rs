//! Media types that are known where the configuration has no `types`.

/// The default of `types`, in its own language.
pub(crate) const BUILT_IN: &str = "
text/html html htm; text/css css; text/javascript js mjs; text/plain txt log conf; text/markdown md;
text/csv csv; text/xml xml; text/calendar ics; text/vtt vtt;
image/gif gif; image/jpeg jpg jpeg; image/png png apng; image/svg+xml svg; image/webp webp;
image/avif avif; image/jxl jxl; image/x-icon ico; image/bmp bmp; image/tiff tif tiff;
font/woff woff; font/woff2 woff2; font/ttf ttf; font/otf otf;
audio/mpeg mp3; audio/ogg ogg oga opus; audio/wav wav; audio/flac flac; audio/mp4 m4a; audio/aac aac;
video/mp4 mp4 m4v; video/webm webm; video/ogg ogv; video/quicktime mov; video/mpeg mpeg mpg;
video/x-matroska mkv; video/mp2t ts; application/vnd.apple.mpegurl m3u8;
application/json json map; application/ld+json jsonld; application/manifest+json webmanifest;
application/geo+json geojson; application/wasm wasm; application/pdf pdf; application/rtf rtf;
application/xhtml+xml xhtml; application/atom+xml atom; application/rss+xml rss; application/yaml yaml yml;
application/toml toml; application/epub+zip epub; application/zip zip; application/gzip gz tgz;
application/zstd zst; application/x-bzip2 bz2; application/x-xz xz; application/x-7z-compressed 7z;
application/x-tar tar; application/java-archive jar;
application/msword doc; application/vnd.ms-excel xls; application/vnd.ms-powerpoint ppt;
application/vnd.openxmlformats-officedocument.wordprocessingml.document docx;
application/vnd.openxmlformats-officedocument.spreadsheetml.sheet xlsx;
application/vnd.openxmlformats-officedocument.presentationml.presentation pptx;
application/vnd.oasis.opendocument.text odt; application/vnd.oasis.opendocument.spreadsheet ods;
application/vnd.oasis.opendocument.presentation odp;
application/octet-stream bin exe dll deb rpm dmg iso img msi;
";
