// What test/oracle/chat_oracle.py talks to: renders templates, so that the
// script can compare with jinja2.
//
//   chat-probe < cases > results
//     cases: repeated {u32 length, template, u32 length, JSON of the variables}
//     results: for each {u32 1 or 0 for an error, u32 length, text}
#include "runtime/infer/chat/ChatTemplate.h"

#include <cstdio>

using namespace tessera;
using namespace tessera::chat;

static bool readText(std::string &text) {
  uint32_t length = 0;
  if (std::fread(&length, sizeof(length), 1, stdin) != 1)
    return false;
  text.resize(length);
  return std::fread(text.data(), 1, length, stdin) == length;
}

static StatusOr<std::string> render(const std::string &source,
                                    const std::string &variables) {
  StatusOr<ChatTemplate> parsed = ChatTemplate::parse(source, "template");
  if (!parsed.ok())
    return parsed.status();
  StatusOr<JsonValue> json = JsonValue::parse(variables, "variables");
  if (!json.ok())
    return json.status();
  RenderOptions options;
  options.now = 1'700'000'000; // what the script gives to jinja2
  return parsed->render(*json, options);
}

int main() {
  for (std::string source, variables;
       readText(source) && readText(variables);) {
    StatusOr<std::string> result = render(source, variables);
    const std::string &text = result.ok() ? *result : result.message();
    uint32_t header[2] = {result.ok() ? 1u : 0u,
                          static_cast<uint32_t>(text.size())};
    if (std::fwrite(header, sizeof(header), 1, stdout) != 1 ||
        std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
      return 1;
  }
  return 0;
}
