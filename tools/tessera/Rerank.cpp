// tessera rerank: orders documents by their relevance to a query.
#include "compiler/api/EncoderProgram.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/EncoderOptions.h"
#include "tools/tessera/StandardInput.h"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fmt/format.h>
#include <memory>

using namespace tessera;

namespace {

struct RerankSettings : EncoderArguments {
  std::string query;
  std::vector<std::string> documents;
  std::optional<int64_t> top; ///< documents to print; nothing: all
  bool truncate = false;
};

struct Ranking {
  std::vector<std::size_t> tokens; ///< of each pair
  std::vector<double> relevance;   ///< of each document
};

} // namespace

static StatusOr<Ranking> rank(const std::vector<std::string> &documents,
                              const RerankSettings &settings,
                              EmbeddingModel &model,
                              serve::PairScorer &scorer) {
  std::optional<int64_t> truncate;
  if (settings.truncate)
    truncate = -1;
  Ranking ranking;
  std::vector<std::vector<int32_t>> tokens;
  std::vector<int64_t> seconds;
  const std::vector<uint32_t> query = scorer.encode(settings.query);
  for (std::size_t i = 0; i < documents.size(); ++i) {
    auto pair =
        scorer.tokens(query, documents[i], truncate, "--truncate shortens it");
    if (!pair.ok())
      return Status::error("document {}: {}", i, pair.message());
    ranking.tokens.push_back(pair->ids.size());
    tokens.emplace_back(pair->ids.begin(), pair->ids.end());
    seconds.push_back(int64_t(pair->secondBegins));
  }
  std::vector<TokenSequence> pairs;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    pairs.emplace_back(tokens[i], seconds[i]);
  std::vector<float> scores(pairs.size());
  TESSERA_RETURN_IF_ERROR(embedAll(model, pairs, scores));
  for (std::size_t i = 0; i < scores.size(); ++i) {
    auto relevance = scorer.relevance(scores[i]);
    if (!relevance.ok())
      return Status::error("document {}: {}", i, relevance.message());
    ranking.relevance.push_back(*relevance);
  }
  return ranking;
}

static Status rerankDocuments(RerankSettings &settings) {
  auto source = settings.find();
  if (!source.ok())
    return source.status();
  if (!source->spec.hasScore)
    return Status::error("this {} gives no scores; give a cross-encoder, such "
                         "as a BertForSequenceClassification of one label, or "
                         "a reward model",
                         name(source->spec.family));
  auto documents = TextSource(settings.documents).next(SIZE_MAX);
  if (!documents.ok())
    return documents.status();
  TemporaryFile program;
  auto options = settings.runOptions(program);
  if (!options.ok())
    return options.status();
  auto opened = openReranker(*source, settings.programs, *options);
  if (!opened.ok())
    return opened.status();
  EmbeddingModel &model = *opened->programs;
  serve::PairScorer scorer(opened->tokenizer, model.shape().context,
                           opened->facts);
  auto begin = std::chrono::steady_clock::now();
  auto ranked = rank(*documents, settings, model, scorer);
  if (!ranked.ok())
    return ranked.status();
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::vector<std::size_t> order = serve::byRelevance(ranked->relevance);
  if (settings.top)
    order.resize(std::min(order.size(), std::size_t(*settings.top)));
  for (std::size_t i : order)
    fmt::print("{{\"index\":{},\"tokens\":{},\"relevance_score\":{}}}\n", i,
               ranked->tokens[i], ranked->relevance[i]);
  settings.say(fmt::format("{}: {} documents in {:.2f} s", settings.place,
                           documents->size(), took.count()));
  return Status::success();
}

void tessera::addRerankCommand(CLI::App &app, Invocation &invocation) {
  auto settings = std::make_shared<RerankSettings>();
  CLI::App *command = app.add_subcommand(
      "rerank",
      "Order documents by their relevance to a query, one JSON object "
      "per line, scored by a cross-encoder or reward model");
  command
      ->add_option("DIR|FILE", settings->place,
                   "model directory, name of a model in the Hugging Face "
                   "cache, or packaged model (tessera compile DIR --mode "
                   "infer)")
      ->required();
  command->add_option("--query", settings->query, "the query")->required();
  command
      ->add_option("--document", settings->documents,
                   "document to score; repeatable (default: every line of "
                   "stdin)")
      ->allow_extra_args(false);
  command
      ->add_option("--top", settings->top,
                   "print so many documents (default: all)")
      ->check(CLI::Range(int64_t(1), INT64_MAX));
  command->add_flag("--truncate", settings->truncate,
                    "truncate pairs that are too long instead of failing");
  addEncoderOptions(*command, *settings);
  command->callback([settings, &invocation] {
    settings->finish("rerank");
    if (Status status = rerankDocuments(*settings); !status.ok())
      invocation.fail(status.message().c_str());
  });
}
