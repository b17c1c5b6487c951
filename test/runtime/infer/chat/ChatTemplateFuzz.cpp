// libFuzzer target: whatever the bytes, a template is read or refused with one
// line, and what is read renders or fails within a small budget.
//   input: the template, optionally a 0xFF byte and JSON of the variables
#include "runtime/infer/chat/ChatTemplate.h"

#include <cstdlib>

using namespace tessera;
using namespace tessera::chat;

static void requireOneLine(const std::string &message) {
  if (message.empty() || message.find('\n') != std::string::npos)
    std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view input(reinterpret_cast<const char *>(data), size);
  size_t end = input.find('\xff');
  std::string_view variables =
      end == input.npos ? R"({"messages": [{"role": "user", "content": "a b"},
                {"role": "assistant", "content": null, "tool_calls":
                 [{"function": {"name": "f", "arguments": {"x": [1, 2.5]}}}]}],
                "tools": null, "bos_token": "<s>"})"
                        : input.substr(end + 1);
  auto parsed = ChatTemplate::parse(input.substr(0, end), "fuzz");
  if (!parsed.ok()) {
    requireOneLine(parsed.message());
    return 0;
  }
  auto json = JsonValue::parse(variables, "variables");
  if (!json.ok())
    return 0;
  RenderOptions options;
  options.now = 1;
  options.budget = {.steps = 20'000,
                    .outputBytes = 1 << 16,
                    .workingBytes = 4 << 20,
                    .depth = 200};
  auto text = parsed->render(*json, options);
  if (!text.ok())
    requireOneLine(text.message());
  else if (text->size() > options.budget.outputBytes)
    std::abort();
  return 0;
}
