// The page at `/`: a chat, or a comparison of embeddings, and live charts, in
// files without external resources (page/, which the build embeds).
#pragma once
#include <string>
#include <string_view>

namespace tessera::serve {

struct PageFile {
  std::string_view text, type;
  std::string etag; ///< quoted, of the text
};

/// "index.html" is the page; nullptr: unknown.
const PageFile *findPageFile(std::string_view name);

/// Whole lines. A browser asks each time whether its copy is current, so that a
/// page has never files of two versions. Nothing but the page's own files is
/// loaded or run, and text never becomes markup (Trusted Types).
inline constexpr std::string_view kPageHeaders =
    "Cache-Control: no-cache\r\n"
    "Content-Security-Policy: default-src 'none'; script-src 'self'; "
    "style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n";

} // namespace tessera::serve
