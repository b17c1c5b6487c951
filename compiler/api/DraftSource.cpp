#include "compiler/api/DraftSource.h"
#include "runtime/infer/engine/DraftModel.h"

using namespace tessera;

// Draft tokens are ids.
static Status checkSameTokens(const tokenizer::Tokenizer &draft,
                              const tokenizer::Tokenizer &model) {
  if (draft.hash() == model.hash())
    return Status::success();
  if (draft.vocabSize() != model.vocabSize())
    return Status::error("its tokenizer has {} tokens, and the model's has {}; "
                         "a draft model has the same tokenizer",
                         draft.vocabSize(), model.vocabSize());
  for (uint32_t id = 0; id < model.vocabSize(); ++id) {
    const tokenizer::TokenText &one = draft.token(id), &other = model.token(id);
    if (one.bytes != other.bytes || one.special != other.special)
      return Status::error("token {} of its tokenizer is '{}', and the model's "
                           "is '{}'; a draft model has the same tokenizer",
                           id, draft.written(id), model.written(id));
  }
  return Status::success();
}

Status DraftSource::named(const Status &status) const {
  return status.ok() ? status
                     : Status::error("--draft {}: {}", place, status.message());
}

Status DraftSource::read(const std::string &given, const ModelChoice &choice,
                         const tokenizer::Tokenizer &tokenizer) {
  place = given;
  return named(find(choice, tokenizer));
}

Status DraftSource::open(const DecoderShape &shape, const TextSink &note) {
  return named(prepare(shape, note));
}

// Options of the command line are for the other model, but for the device and
// the batch.
Status DraftSource::find(const ModelChoice &given,
                         const tokenizer::Tokenizer &tokenizer) {
  auto source = findModel(place);
  if (!source.ok())
    return source.status();
  ModelChoice choice = given;
  choice.place = place;
  choice.phases = nullptr;
  choice.recipe.clear();
  choice.set.clear();
  choice.decoder.pages.reset();
  if (*source && (*source)->packaged)
    choice.decoder.batch.reset();
  isCompiledHere = *source && !(*source)->packaged;
  choices = tokenizer.vocabSize();
  TESSERA_RETURN_IF_ERROR(opened.read(choice, source.take()));
  return checkSameTokens(*opened.tokenizer, tokenizer);
}

Status DraftSource::prepare(const DecoderShape &shape, const TextSink &note) {
  if (isCompiledHere)
    opened.addKey(fmt::format("inference.context={}", shape.context));
  TESSERA_RETURN_IF_ERROR(opened.open(/*mayScore=*/false, note));
  auto created = DecodePrograms::create(opened.model->get());
  if (!created.ok())
    return created.status();
  programs = created.take();
  TESSERA_RETURN_IF_ERROR(checkDraftModel(programs->shape(), choices));
  note(fmt::format("draft tokens are proposed by {}", opened.name));
  return Status::success();
}
