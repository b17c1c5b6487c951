// libFuzzer target: any text encodes, under every splitting pattern, to ids
// that decode to the same bytes; and BPE can be trained on it.
#include "TestTokenizers.h"

#include <cstdlib>

using namespace tessera;
using namespace tessera::tokenizer;

static void require(bool truth) {
  if (!truth)
    std::abort();
}

static void roundTrip(Encoder &encoder, const Tokenizer &tokenizer,
                      std::string_view text) {
  std::vector<uint32_t> ids = encoder.encode(text);
  require(decodeBytes(tokenizer, ids) == text);
  // The second time the pieces come from the cache.
  require(encoder.encode(text) == ids);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string text(reinterpret_cast<const char *>(data), size);
  // Made once: making them costs far more than a run.
  static const std::vector<Tokenizer> tokenizers = [] {
    std::vector<Tokenizer> all;
    for (SplitPattern pattern : {SplitPattern::Whole, SplitPattern::Gpt2,
                                 SplitPattern::Cl100k, SplitPattern::Qwen2})
      all.push_back(test::mustParse(test::tokenizerFields(330, pattern)));
    return all;
  }();
  static std::vector<Encoder> encoders(tokenizers.begin(), tokenizers.end());
  for (size_t i = 0; i < encoders.size(); ++i)
    roundTrip(encoders[i], tokenizers[i], text);
  if (size < 200 && size % 16 == 7) {
    Tokenizer trained = *Tokenizer::parse(
        tokenizerJson(test::train(280, SplitPattern::Whole, text)), "fuzz");
    Encoder encoder(trained);
    roundTrip(encoder, trained, text);
  }
  return 0;
}
