#include "compiler/api/RewardProgram.h"

using namespace tessera;

StatusOr<std::unique_ptr<OpenedRewardModel>>
tessera::openRewardModel(const ModelSource &source, const ProgramOptions &asked,
                         const GenerateOptions &options) {
  if (!source.spec.hasScore)
    return Status::error(
        "this {} has no head of scores, so it is not a reward model; train one "
        "with "
        "task: reward, or give a sequence classifier of one label",
        name(source.spec.family));
  TESSERA_RETURN_IF_ERROR(hal::checkDevice(options.device));
  TESSERA_RETURN_IF_ERROR(checkProgramOptions(source, asked));
  // Checks that need no program come before compilation.
  auto tokenizer = tokenizer::Tokenizer::of(source.files);
  if (!tokenizer.ok())
    return tokenizer.status();
  auto format = chat::loadChatFormat(source.files, tokenizer.take(), "", {});
  if (!format.ok())
    return format.status();
  auto model = openModel(source, asked, options);
  if (!model.ok())
    return model.status();
  auto programs =
      EmbedPrograms::create((*model)->get(), (*model)->facts().vocabSize);
  if (!programs.ok())
    return programs.status();
  return std::make_unique<OpenedRewardModel>(
      OpenedRewardModel{model.take(), programs.take(), format.take()});
}
