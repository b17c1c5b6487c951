// tessera embed: computes embeddings of inputs with an encoder.
#include "compiler/api/EncoderProgram.h"
#include "runtime/support/Text.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/EncoderOptions.h"
#include "tools/tessera/StandardInput.h"
#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <memory>

using namespace tessera;

namespace {

struct EmbedSettings : EncoderArguments {
  std::vector<std::string> inputs;
  std::optional<int64_t> dimensions;
  bool truncate = false;
};

struct Count {
  std::size_t inputs = 0;
  int64_t tokens = 0;
};

} // namespace

static Status embedSome(const std::vector<std::string> &inputs,
                        const EmbedSettings &settings, EmbeddingModel &model,
                        serve::TextEmbedder &embedder, Count &count) {
  std::vector<std::vector<int32_t>> tokens;
  std::optional<int64_t> truncate;
  if (settings.truncate)
    truncate = -1;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    auto made = embedder.tokens(inputs[i], truncate, "--truncate shortens it");
    if (!made.ok())
      return Status::error("text {}: {}", count.inputs + i + 1, made.message());
    tokens.push_back(made.take());
  }
  std::vector<TokenSequence> spans(tokens.begin(), tokens.end());
  const int64_t width = model.shape().width;
  std::vector<float> vectors(inputs.size() * std::size_t(width));
  TESSERA_RETURN_IF_ERROR(embedAll(model, spans, vectors));
  const int64_t dimensions = settings.dimensions.value_or(width);
  vectors = embedder.cut(std::move(vectors), dimensions);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    auto vector = std::span(vectors).subspan(i * dimensions, dimensions);
    for (float each : vector)
      if (!std::isfinite(each))
        return Status::error("text {}: its embedding has elements that are not "
                             "finite; check the weights",
                             count.inputs + 1);
    fmt::print("{{\"index\":{},\"tokens\":{},\"embedding\":[{}]}}\n",
               count.inputs++, tokens[i].size(), fmt::join(vector, ","));
    count.tokens += int64_t(tokens[i].size());
  }
  return Status::success();
}

static Status embedInputs(EmbedSettings &settings) {
  auto source = settings.find();
  if (!source.ok())
    return source.status();
  if (source->spec.hasScore)
    return Status::error(
        "this {} gives scores and no embeddings; print them with "
        "tessera rerank or, of a reward model, tessera score; "
        "or give an encoder, such as a BERT model",
        name(source->spec.family));
  if (!source->spec.isEncoder())
    return Status::error("{} generates text and has no embeddings; give an "
                         "encoder, such as a BERT model",
                         name(source->spec.family));
  TemporaryFile program;
  auto options = settings.runOptions(program);
  if (!options.ok())
    return options.status();
  auto opened = openEncoder(*source, settings.programs, *options,
                            [&](std::string_view line) { settings.say(line); });
  if (!opened.ok())
    return opened.status();
  EmbeddingModel &model = *opened->programs;
  serve::TextEmbedder embedder(opened->tokenizer, model.shape(), opened->facts);
  if (settings.dimensions)
    TESSERA_RETURN_IF_ERROR(embedder.checkDimensions(*settings.dimensions));
  // Enough inputs that some have equal lengths and fill a batch.
  const auto most = std::size_t(8 * model.shape().batch);
  TextSource inputs(settings.inputs);
  Count count;
  auto begin = std::chrono::steady_clock::now();
  for (;;) {
    auto some = inputs.next(most);
    if (!some.ok())
      return some.status();
    if (some->empty())
      break;
    TESSERA_RETURN_IF_ERROR(embedSome(*some, settings, model, embedder, count));
  }
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  settings.say(fmt::format("{}: {} inputs of {} tokens in {:.2f} s",
                           settings.place, count.inputs, count.tokens,
                           took.count()));
  return Status::success();
}

void tessera::addEmbedCommand(CLI::App &app, Invocation &invocation) {
  auto settings = std::make_shared<EmbedSettings>();
  CLI::App *command = app.add_subcommand(
      "embed", "Print embeddings of inputs, one JSON object per line, computed "
               "by an encoder such as BERT or MiniLM");
  command
      ->add_option("DIR|FILE", settings->place,
                   "model directory (Hugging Face or sentence-transformers), "
                   "name of a model in the Hugging Face cache, or packaged "
                   "model (tessera compile DIR --mode infer)")
      ->required();
  command
      ->add_option("--text", settings->inputs,
                   "text to embed; repeatable (default: every line of stdin)")
      ->allow_extra_args(false);
  command->add_option(
      "--dimensions", settings->dimensions,
      "elements per embedding, if the model's may be shortened");
  command->add_flag("--truncate", settings->truncate,
                    "truncate inputs that are too long instead of failing");
  addEncoderOptions(*command, *settings);
  command->callback([settings, &invocation] {
    settings->finish("embed");
    if (Status status = embedInputs(*settings); !status.ok())
      invocation.fail(status.message().c_str());
  });
}
