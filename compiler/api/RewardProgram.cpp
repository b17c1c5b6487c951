#include "compiler/api/RewardProgram.h"
#include "compiler/api/EncoderProgram.h"

using namespace tessera;

StatusOr<std::unique_ptr<OpenedRewardModel>> tessera::openRewardModel(
    const ModelSource &source, const ProgramOptions &asked,
    const GenerateOptions &options,
    const std::function<Status(const chat::ChatFormat &)> &check) {
  if (source.spec.isEncoder() && source.spec.hasScore)
    return Status::error("this {} is a cross-encoder, which scores pairs of "
                         "strings and not answers of chats; use tessera "
                         "rerank, or give a decoder with a score",
                         name(source.spec.family));
  if (!source.spec.hasScore)
    return Status::error(
        "this {} has no score head, so it is not a reward model; train one "
        "with task: reward, or give a sequence classifier of one label",
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
  if (check)
    TESSERA_RETURN_IF_ERROR(check(*format));
  auto opened = openEmbedding(source, asked, options);
  if (!opened.ok())
    return opened.status();
  return std::make_unique<OpenedRewardModel>(OpenedRewardModel{
      std::move(opened->model), std::move(opened->programs), format.take()});
}
