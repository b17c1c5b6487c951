// serve-check: the server over a model of hashes, for the scripts beside it. It
// has a byte-level tokenizer, and few enough pages that texts preempt one
// another.
//   serve-check [--slow MICROSECONDS] [--slow-read MICROSECONDS]
//     [--patience MILLISECONDS] [--health MILLISECONDS] [--requests N]
//     [--port PORT] [--speculate N] [--key KEY]...
// listens on 127.0.0.1, on a free port if none is given, and says so as
// `tessera serve` does.
#include "runtime/data/tokenizer/BpeTrainer.h"
#include "runtime/serve/Serve.h"
#include "test/runtime/infer/engine/FakeModel.h"

#include <charconv>
#include <cstdio>
#include <thread>

using namespace tessera;

namespace {

/// Takes its time for every step.
class SlowModel final : public PagedModel {
public:
  using Time = std::chrono::microseconds;
  SlowModel(PagedModel &model, Time step, Time read)
      : model(model), step(step), read(read) {}
  const DecoderShape &shape() const override { return model.shape(); }
  Status prefill(const CachedText &text, std::span<const int32_t> tokens,
                 bool wanted) override {
    std::this_thread::sleep_for(read);
    return model.prefill(text, tokens, wanted);
  }
  Status decode(std::span<const CachedText> texts,
                std::span<const int32_t> tokens) override {
    std::this_thread::sleep_for(step);
    return model.decode(texts, tokens);
  }
  std::span<const float> logits(int64_t i) const override {
    return model.logits(i);
  }

private:
  PagedModel &model;
  Time step, read;
};

constexpr uint32_t kVocab = 257; // every byte, and the end of a text

/// One without merges: a token is a byte.
StatusOr<tokenizer::Tokenizer> byteTokenizer() {
  tokenizer::TrainOptions options;
  options.vocabSize = kVocab;
  auto trained = tokenizer::trainBpe(tokenizer::WordTable(), options);
  if (!trained.ok())
    return trained.status();
  return tokenizer::Tokenizer::parse(tokenizer::tokenizerJson(*trained),
                                     "check");
}

int64_t number(std::string_view text) {
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

} // namespace

int main(int argc, char **argv) {
  serve::ServeOptions options;
  options.port = 0;
  options.service.model = "fake";
  options.service.version = "check";
  // Short, for scripts that wait for one.
  options.http.pingTime = std::chrono::milliseconds(200);
  std::chrono::microseconds slow{0}, slowRead{0};
  for (int i = 1; i + 1 < argc; i += 2) {
    std::string_view name = argv[i];
    if (name == "--slow")
      slow = std::chrono::microseconds(number(argv[i + 1]));
    else if (name == "--slow-read")
      slowRead = std::chrono::microseconds(number(argv[i + 1]));
    else if (name == "--health") // recent; whoever asks waits twice as long
      options.service.health = {
          std::chrono::milliseconds(number(argv[i + 1])),
          std::chrono::milliseconds(2 * number(argv[i + 1]))};
    else if (name == "--patience")
      options.http.requestTime = std::chrono::milliseconds(number(argv[i + 1]));
    else if (name == "--port")
      options.port = uint16_t(number(argv[i + 1]));
    else if (name == "--requests")
      options.engine.maxRequests = number(argv[i + 1]);
    else if (name == "--speculate")
      options.engine.scheduler.guesses = number(argv[i + 1]);
    else if (name == "--key")
      options.service.apiKeys.emplace_back(argv[i + 1]);
  }
  auto tokenizer = byteTokenizer();
  if (!tokenizer.ok())
    return 1;
  DecoderShape shape;
  shape.context = 1024;
  shape.page = 16;
  shape.pages = 64;
  shape.chunk = 64;
  shape.vocab = kVocab;
  shape.buckets = {1, 2, 4, 8};
  testing::FakeModel fake(shape);
  SlowModel model(fake, slow, slowRead);
  Status status = serve::serve(model, *tokenizer, serve::chatMl(), options);
  if (!status.ok())
    std::fprintf(stderr, "serve-check: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
