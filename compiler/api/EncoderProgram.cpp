#include "compiler/api/EncoderProgram.h"
#include "models/SentenceModel.h"
#include "runtime/support/Text.h"
#include <fmt/format.h>

using namespace tessera;

Status tessera::generatesNothing(const models::ModelSpec &spec) {
  if (spec.isEncoder() && spec.hasScore)
    return Status::error(
        "this {} is a cross-encoder, which scores pairs of "
        "strings and generates none; use tessera rerank, or tessera "
        "serve and "
        "/v1/rerank",
        name(spec.family));
  if (spec.hasScore)
    return Status::error("this {} is a reward model, which gives scores and "
                         "generates no text; use tessera score, or give the "
                         "language model",
                         name(spec.family));
  return Status::error("{} is an encoder and generates no text; use tessera "
                       "embed, or tessera serve and /v1/embeddings",
                       name(spec.family));
}

// The program's recipe holds its batch, context and pooling.
static StatusOr<serve::EmbedFacts> factsOf(const OpenedEncoder &opened,
                                           const models::ModelSpec &spec,
                                           const std::string &prompt) {
  auto recipe =
      recipe::parseRecipe(opened.model->facts().recipe, "the program's recipe");
  if (!recipe.ok())
    return recipe.status();
  return serve::EmbedFacts{prompt, spec.vectorCuts, spec.cutsAnywhere,
                           recipe->inference.normalize ==
                               recipe::Normalize::L2};
}

StatusOr<OpenedEmbedding>
tessera::openEmbedding(const ModelSource &source, const ProgramOptions &asked,
                       const GenerateOptions &options) {
  auto model = openModel(source, asked, options);
  if (!model.ok())
    return model.status();
  auto programs =
      EmbedPrograms::create((*model)->get(), (*model)->facts().vocabSize);
  if (!programs.ok())
    return programs.status();
  return OpenedEmbedding{model.take(), programs.take()};
}

StatusOr<OpenedEncoder>
tessera::openEncoder(const ModelSource &source, const ProgramOptions &asked,
                     const GenerateOptions &options,
                     const std::function<void(std::string_view)> &note) {
  TESSERA_RETURN_IF_ERROR(hal::checkDevice(options.device));
  TESSERA_RETURN_IF_ERROR(checkProgramOptions(source, asked));
  // Checks that need no program come before compilation.
  auto sentence = models::loadSentenceModel(source.files);
  if (!sentence.ok())
    return sentence.status();
  auto tokenizer = tokenizer::Tokenizer::of(source.files);
  if (!tokenizer.ok())
    return tokenizer.status();
  if (!sentence->given && !source.packaged)
    note(fmt::format("{} has no modules.json: pooling by mean; change it with "
                     "--set inference.pooling and inference.normalize",
                     source.files.place()));
  if (!sentence->prompt.empty())
    note(fmt::format("the model's prompt {} is prepended to every text",
                     quote(sentence->prompt)));
  endPhase(options.phases, "tokenizer");
  auto embedding = openEmbedding(source, asked, options);
  if (!embedding.ok())
    return embedding.status();
  OpenedEncoder opened{std::move(embedding->model),
                       std::move(embedding->programs),
                       tokenizer.take(),
                       {}};
  auto facts = factsOf(opened, source.spec, sentence->prompt);
  if (!facts.ok())
    return facts.status();
  opened.facts = facts.take();
  return opened;
}

StatusOr<OpenedReranker> tessera::openReranker(const ModelSource &source,
                                               const ProgramOptions &asked,
                                               const GenerateOptions &options) {
  TESSERA_RETURN_IF_ERROR(hal::checkDevice(options.device));
  TESSERA_RETURN_IF_ERROR(checkProgramOptions(source, asked));
  auto tokenizer = tokenizer::Tokenizer::of(source.files);
  if (!tokenizer.ok())
    return tokenizer.status();
  if (!tokenizer->hasPairs())
    return Status::error("{}: the post-processor's template of a pair is not "
                         "supported; it must have the Sequences A and B, with "
                         "type ids 0 and then 1",
                         source.files.where(kTokenizerFile));
  auto relevance = models::loadRelevance(source.files);
  if (!relevance.ok())
    return relevance.status();
  endPhase(options.phases, "tokenizer");
  auto scores = openEmbedding(source, asked, options);
  if (!scores.ok())
    return scores.status();
  if (scores->programs->shape().width != 1)
    return Status::error("the programs give {} numbers for a pair, where a "
                         "score is one; compile the model again",
                         scores->programs->shape().width);
  return OpenedReranker{std::move(scores->model),
                        std::move(scores->programs),
                        tokenizer.take(),
                        {*relevance == models::Relevance::Logistic}};
}
