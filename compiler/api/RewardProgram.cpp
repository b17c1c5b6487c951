#include "compiler/api/RewardProgram.h"

using namespace tessera;

StatusOr<OpenedRewardModel>
tessera::openRewardModel(const ModelSource &source, const ProgramOptions &asked,
                         const GenerateOptions &options) {
  if (!source.spec.hasScore)
    return Status::error("'{}' is not a reward model; give the directory that "
                         "tessera export writes of a run with task: reward",
                         source.files.place());
  TESSERA_RETURN_IF_ERROR(hal::checkDevice(options.device));
  TESSERA_RETURN_IF_ERROR(checkProgramOptions(source, asked));
  auto tokenizer = tokenizer::Tokenizer::of(source.files);
  if (!tokenizer.ok())
    return tokenizer.status();
  auto model = openModel(source, asked, options);
  if (!model.ok())
    return model.status();
  auto programs =
      EmbedPrograms::create((*model)->get(), (*model)->facts().vocabSize);
  if (!programs.ok())
    return programs.status();
  return OpenedRewardModel{model.take(), programs.take(), tokenizer.take()};
}
