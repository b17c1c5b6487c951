// serve-check: the server over a model of hashes, for the scripts beside it. It
// has a byte-level tokenizer, and few enough pages that texts preempt one
// another. With --embeds 1 it is an encoder, whose vectors are sums, with
// --ranks 1 a reranker, whose scores are the second text's share of the tokens.
//   serve-check [--slow MICROSECONDS] [--slow-read MICROSECONDS]
//     [--patience MILLISECONDS] [--health MILLISECONDS] [--requests N]
//     [--request-timeout SECONDS]
//     [--connections N] [--port PORT] [--speculate N] [--draft 0|1]
//     [--key KEY]... [--name NAME]...
//     [--stored N] [--stored-bytes N] [--unread N] [--embeds 0|1] [--ranks 0|1]
//     [--template FILE] [--traces URL] [--priorities 0|1]
// listens on 127.0.0.1, on a free port if none is given, and says so as
// `tessera serve` does.
#include "runtime/data/tokenizer/BpeTrainer.h"
#include "runtime/serve/EmbedService.h"
#include "runtime/serve/ModelChat.h"
#include "runtime/serve/RankService.h"
#include "runtime/support/Text.h"
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
                 const Wanted &wanted) override {
    std::this_thread::sleep_for(read);
    return model.prefill(text, tokens, wanted);
  }
  Status decode(std::span<const CachedText> texts,
                std::span<const int32_t> tokens,
                const Wanted &wanted) override {
    std::this_thread::sleep_for(step);
    return model.decode(texts, tokens, wanted);
  }
  std::span<const float> logits(int64_t i) const override {
    return model.logits(i);
  }
  int32_t token(int64_t i) const override { return model.token(i); }

private:
  PagedModel &model;
  Time step, read;
};

/// Of a text the sum of its tokens, and the same weighted by their places.
class SumModel final : public EmbeddingModel {
public:
  SumModel(EmbeddingShape shape, std::chrono::microseconds batch)
      : sizes(std::move(shape)), batch(batch) {}
  const EmbeddingShape &shape() const override { return sizes; }
  Status embed(std::span<const TokenSequence> texts,
               std::span<float> vectors) override {
    std::this_thread::sleep_for(batch);
    for (size_t i = 0; i < texts.size(); ++i) {
      float *vector = &vectors[2 * i];
      vector[0] = vector[1] = 0;
      for (size_t at = 0; at < texts[i].tokens.size(); ++at) {
        vector[0] += float(texts[i].tokens[at]);
        vector[1] += float(at) * float(texts[i].tokens[at]);
      }
    }
    return Status::success();
  }

private:
  EmbeddingShape sizes;
  std::chrono::microseconds batch;
};

/// Of a pair the share of its tokens that are the second text's.
class ShareModel final : public EmbeddingModel {
public:
  const EmbeddingShape &shape() const override { return sizes; }
  Status embed(std::span<const TokenSequence> pairs,
               std::span<float> scores) override {
    for (size_t i = 0; i < pairs.size(); ++i) {
      const auto count = float(pairs[i].tokens.size());
      scores[i] = 1 - float(pairs[i].secondBegins) / count;
    }
    return Status::success();
  }

private:
  EmbeddingShape sizes{64, 1, 257, 4, {16, 64}};
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

struct Settings {
  serve::ServeOptions serve;
  std::chrono::microseconds slow{0}, slowRead{0};
  bool embeds = false, ranks = false, drafts = false;
  std::string chatTemplate; ///< a file; none: ChatML
};

/// Of one option; unknown ones change nothing.
void read(std::string_view name, const char *value, Settings &to) {
  using std::chrono::microseconds, std::chrono::milliseconds;
  serve::ServiceOptions &service = to.serve.service;
  if (name == "--slow")
    to.slow = microseconds(number(value));
  else if (name == "--slow-read")
    to.slowRead = microseconds(number(value));
  else if (name == "--health") // recent; whoever asks waits twice as long
    service.health = {milliseconds(number(value)),
                      milliseconds(2 * number(value))};
  else if (name == "--patience")
    to.serve.http.requestTime = milliseconds(number(value));
  else if (name == "--request-timeout")
    to.serve.requestSeconds = number(value);
  else if (name == "--port")
    to.serve.port = uint16_t(number(value));
  else if (name == "--connections")
    to.serve.http.connections = std::size_t(number(value));
  else if (name == "--requests")
    to.serve.engine.maxRequests = number(value);
  else if (name == "--speculate")
    to.serve.engine.scheduler.drafts = number(value);
  else if (name == "--draft")
    to.drafts = number(value) != 0;
  else if (name == "--unread")
    to.serve.http.unreadBytes = std::size_t(number(value));
  else if (name == "--stored")
    service.store.count = std::size_t(number(value));
  else if (name == "--stored-bytes")
    service.store.bytes = std::size_t(number(value));
  else if (name == "--key")
    service.apiKeys.emplace_back(value);
  else if (name == "--name")
    service.models.emplace_back(value);
  else if (name == "--template")
    to.chatTemplate = value;
  else if (name == "--priorities")
    service.priorities = number(value) != 0;
  else if (name == "--traces")
    to.serve.traces = serve::parseCollectorUrl(value).take();
  else if (name == "--embeds")
    to.embeds = number(value) != 0;
  else if (name == "--ranks")
    to.ranks = number(value) != 0;
}

Status serveScores(const tokenizer::Tokenizer &tokenizer,
                   const Settings &settings) {
  ShareModel model;
  return serve::serveRanking(model, tokenizer, {/*isLogistic=*/false},
                             settings.serve);
}

Status serveInputs(const tokenizer::Tokenizer &tokenizer, Settings settings) {
  DecoderShape shape;
  shape.context = 1024;
  shape.page = 16;
  shape.pages = 64;
  shape.chunk = 64;
  shape.vocab = kVocab;
  shape.buckets = {1, 2, 4, 8};
  testing::FakeModel fake(shape);
  SlowModel model(fake, settings.slow, settings.slowRead);
  testing::FakeModel draft(shape);
  if (settings.drafts) {
    settings.serve.engine.scheduler.draft = &draft;
    settings.serve.engine.scheduler.drafts = shape.buckets.back();
  }
  if (settings.chatTemplate.empty())
    return serve::serve(model, tokenizer, serve::chatMl(), settings.serve);
  auto source = readTextFile(settings.chatTemplate, 1 << 20);
  if (!source.ok())
    return source.status();
  auto chat = serve::parseModelChat(*source, settings.chatTemplate, tokenizer);
  if (!chat.ok())
    return chat.status();
  return serve::serve(model, tokenizer, **chat, settings.serve);
}

Status serveVectors(const tokenizer::Tokenizer &tokenizer,
                    const Settings &settings) {
  SumModel model({/*context=*/64, /*width=*/2, kVocab, /*batch=*/4, {32, 64}},
                 settings.slow);
  serve::EmbedFacts facts;
  facts.cutsAnywhere = true;
  return serve::serveEmbeddings(model, tokenizer, facts, settings.serve);
}

} // namespace

int main(int argc, char **argv) {
  Settings settings;
  settings.serve.port = 0;
  settings.serve.service.version = "check";
  // Short, for scripts that wait for one.
  settings.serve.http.pingTime = std::chrono::milliseconds(200);
  for (int i = 1; i + 1 < argc; i += 2)
    read(argv[i], argv[i + 1], settings);
  if (settings.serve.service.models.empty())
    settings.serve.service.models = {"fake"};
  auto tokenizer = byteTokenizer();
  if (!tokenizer.ok())
    return 1;
  Status status = settings.serve.takeAddress();
  if (status.ok())
    status = settings.embeds  ? serveVectors(*tokenizer, settings)
             : settings.ranks ? serveScores(*tokenizer, settings)
                              : serveInputs(*tokenizer, settings);
  if (!status.ok())
    std::fprintf(stderr, "serve-check: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
