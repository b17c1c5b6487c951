// libFuzzer target: whatever the bytes, a tokenizer.json is read or refused
// with one line, and what is read encodes within its vocabulary.
//   input: the file, optionally a 0xFF byte and a text to encode
#include "runtime/data/tokenizer/Tokenizer.h"

#include <cstdlib>

using namespace tessera;
using namespace tessera::tokenizer;

static void require(bool truth) {
  if (!truth)
    std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view input(reinterpret_cast<const char *>(data), size);
  size_t end = input.find('\xff');
  std::string_view text =
      end == input.npos ? "a 中'\xff<s>\n" : input.substr(end + 1);
  auto tokenizer = Tokenizer::parse(input.substr(0, end), "fuzz");
  if (!tokenizer.ok()) {
    require(!tokenizer.message().empty());
    require(tokenizer.message().find('\n') == std::string::npos);
    return 0;
  }
  Encoder encoder(*tokenizer);
  for (SpecialText special : {SpecialText::Parse, SpecialText::Plain}) {
    std::vector<uint32_t> ids = encoder.encode(text, special);
    StreamDecoder decoder(*tokenizer);
    std::string streamed;
    for (uint32_t id : ids) {
      require(id < tokenizer->vocabSize() && tokenizer->token(id).present);
      streamed += decoder.push(id);
    }
    require(streamed + decoder.finish() == decode(*tokenizer, ids));
  }
  return 0;
}
