#include "compiler/report/Page.h"

#include <fmt/format.h>

#include "parallelism/pipeline/Timeline.h"

namespace tessera::report {
namespace {

struct EmbeddedFile {
  std::string_view name, text;
};

#include "compiler/report/Page.inc"

std::string filesEndingIn(std::string_view suffix) {
  std::string text;
  for (const EmbeddedFile &file : kPageFiles)
    if (file.name.ends_with(suffix))
      text += file.text;
  return text;
}

} // namespace

// "<" occurs only in strings of JSON. Without it no string can end the element
// or begin a comment.
std::string scriptText(const Json &data) {
  std::string text;
  for (const char each :
       data.dump(-1, ' ', false, Json::error_handler_t::replace))
    if (each == '<')
      text += "\\u003c";
    else
      text += each;
  return text;
}

std::string page(std::string_view title, const Json &data) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
      "'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src "
      "data:\">\n"
      "<title>{}</title>\n<style>\n{}</style>\n<body>\n{}"
      "<script type=\"application/json\" id=\"data\">{}</script>\n"
      "<script>\n\"use strict\";\n{}</script>\n</body>\n</html>\n",
      pipeline::markupText(title), filesEndingIn(".css"),
      filesEndingIn(".html"), scriptText(data), filesEndingIn(".js"));
}

} // namespace tessera::report
