#include "tools/tessera/EncoderProgram.h"
#include "models/SentenceModel.h"
#include "runtime/support/Text.h"
#include <fmt/format.h>

using namespace tessera;

Status tessera::encoderGeneratesNothing(const models::ModelSpec &spec) {
  return Status::error("{} is an encoder and generates no text; embed texts "
                       "with it: tessera embed, or tessera serve and "
                       "/v1/embeddings",
                       name(spec.family));
}

// What the program was made for is in its recipe.
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

StatusOr<OpenedEncoder> tessera::openEncoder(
    const std::string &directory, const models::ModelSpec &spec,
    const DecoderSettings &settings, const std::string &recipe,
    const std::vector<std::string> &set, const GenerateOptions &options,
    const std::function<void(std::string_view)> &note) {
  TESSERA_RETURN_IF_ERROR(hal::checkDeviceName(settings.device));
  // What can be said at once is said before anything is compiled.
  auto sentence = models::loadSentenceModel(directory);
  if (!sentence.ok())
    return sentence.status();
  auto tokenizer = tokenizer::Tokenizer::load(directory + "/" + kTokenizerFile);
  if (!tokenizer.ok())
    return tokenizer.status();
  if (!sentence->given)
    note(fmt::format("{} has no modules.json: the mean of the tokens' vectors "
                     "unless --set inference.pooling and inference.normalize "
                     "say otherwise",
                     directory));
  if (!sentence->prompt.empty())
    note(fmt::format("every text begins with the model's prompt {}",
                     quote(sentence->prompt)));
  auto endPhase = [&](const char *name) {
    if (options.phases)
      options.phases->end(name);
  };
  endPhase("tokenizer");
  if (llvm::Error error = compileModelDecoder(directory, spec, settings, recipe,
                                              set, options.program))
    return Status::error("{}", llvm::toString(std::move(error)));
  endPhase("programs");
  auto model = openModelDirectory(directory, options);
  if (!model.ok())
    return model.status();
  auto programs =
      EmbedPrograms::create((*model)->get(), (*model)->facts().vocabSize);
  if (!programs.ok())
    return programs.status();
  OpenedEncoder opened{model.take(), programs.take(), tokenizer.take(), {}};
  auto facts = factsOf(opened, spec, sentence->prompt);
  if (!facts.ok())
    return facts.status();
  opened.facts = facts.take();
  return opened;
}
