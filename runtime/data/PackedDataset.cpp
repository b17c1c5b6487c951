#include "runtime/data/PackedDataset.h"
#include "runtime/data/FileOperations.h"
#include "runtime/support/SplitMix64.h"

#include <algorithm>
#include <filesystem>

namespace tessera {

static Status checkFit(const PackedIndex &index, const std::string &folder,
                       int64_t vocabSize, int64_t sequence) {
  // Reading a shard refuses tokens at or above its own vocabulary, so this one
  // comparison keeps every embedding lookup in bounds.
  if (index.vocabSize > uint64_t(vocabSize))
    return Status::error("'{}' was tokenized for a vocabulary of {} tokens, "
                         "the model has {}; use the model's tokenizer or "
                         "compile the model with vocab_size {}",
                         folder, index.vocabSize, vocabSize, index.vocabSize);
  if (index.sequence != uint64_t(sequence))
    return Status::error("'{}' has rows of {} tokens, the model has sequences "
                         "of {}; pack it again with --sequence {} or compile "
                         "the model with batch.sequence {}",
                         folder, index.sequence, sequence, sequence,
                         index.sequence);
  if (index.rows == 0)
    return Status::error("'{}' has no rows; give `tessera data chat` an input "
                         "with conversations",
                         folder);
  return Status::success();
}

static Status checkShard(const PackedShard &shard,
                         const PackedIndex::Shard &listed,
                         const PackedIndex &index, const std::string &path) {
  const PackedHeader &head = shard.header();
  const ShardHeader &tokens = shard.tokens().header();
  if (head.rowCount == listed.rows && head.documentCount == listed.documents &&
      head.tokenCount == listed.tokens && head.sequence == index.sequence &&
      tokens.vocabSize == index.vocabSize &&
      tokens.tokenizerHash == index.tokenizerHash)
    return Status::success();
  return Status::error("{}: {} rows of {}, {} documents, {} tokens, vocabulary "
                       "{}, tokenizer {:016x}; but index.json says {} of {}, "
                       "{}, {}, {}, {:016x}; write the folder again with "
                       "`tessera data chat`",
                       path, head.rowCount, head.sequence, head.documentCount,
                       head.tokenCount, tokens.vocabSize, tokens.tokenizerHash,
                       listed.rows, index.sequence, listed.documents,
                       listed.tokens, index.vocabSize, index.tokenizerHash);
}

StatusOr<PackedDataset> PackedDataset::open(const std::string &folder,
                                            int64_t vocabSize,
                                            int64_t sequence) {
  StatusOr<PackedIndex> index = readPackedIndex(folder);
  if (!index.ok())
    return index.status();
  TESSERA_RETURN_IF_ERROR(checkFit(*index, folder, vocabSize, sequence));
  PackedDataset dataset;
  uint64_t rows = 0;
  for (const PackedIndex::Shard &listed : index->shards) {
    StatusOr<PackedShard> shard = PackedShard::open(folder, listed.file);
    if (!shard.ok())
      return shard.status();
    TESSERA_RETURN_IF_ERROR(
        checkShard(*shard, listed, *index, folder + "/" + listed.file));
    dataset.shardBegins.push_back(rows);
    rows += listed.rows;
    dataset.shards.push_back(shard.take());
  }
  dataset.folder = folder;
  dataset.listed = index.take();
  return dataset;
}

Status PackedDataset::openReference(bool hasWholePrompts) {
  references.clear();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string path = folder + "/" + listed.shards[i].file + ".ref";
    if (!std::filesystem::exists(path))
      return Status::error(
          "'{}' has no log-probabilities of a reference model{}"
          "; run: tessera data reference {} --model DIR{}",
          folder, i == 0 ? "" : " for some shards", folder,
          listed.objective == PackedObjective::Preference
              ? ", or compile with --set preference.reference=none"
              : "");
    StatusOr<ReferenceShard> reference =
        ReferenceShard::open(path, shards[i].header());
    if (!reference.ok())
      return reference.status();
    if (reference->hasWholePrompts() != hasWholePrompts)
      return Status::error(
          "{}: the reference model has read {} prompts, and this program has "
          "{} ones; run `tessera data reference` again{}",
          path, hasWholePrompts ? "causal" : "bidirectional",
          hasWholePrompts ? "bidirectional" : "causal",
          hasWholePrompts ? " with --set attention.prompts=bidirectional" : "");
    TESSERA_RETURN_IF_ERROR(reference->verify());
    references.push_back(reference.take());
  }
  return Status::success();
}

static Status checkTeacher(const TeacherFacts &has, const TeacherFacts &needs,
                           const std::string &folder) {
  if (has.vocabSize != needs.vocabSize)
    return Status::error("'{}' has probabilities of a teacher with {} tokens, "
                         "the model has {}; distillation needs a teacher of "
                         "the model's vocabulary",
                         folder, has.vocabSize, needs.vocabSize);
  if (has.temperature != needs.temperature)
    return Status::error("'{}' has probabilities at the temperature {}, the "
                         "program has {}; compile it with --set "
                         "distill.temperature={}, or run `tessera data "
                         "teacher` again with --temperature {}",
                         folder, has.temperature, needs.temperature,
                         has.temperature, needs.temperature);
  if (has.top < needs.top)
    return Status::error("'{}' has the {} most probable tokens of its teacher, "
                         "the program takes {}; compile it with --set "
                         "distill.top={}, or run `tessera data teacher` again "
                         "with --top {}",
                         folder, has.top, needs.top, has.top, needs.top);
  return Status::success();
}

Status PackedDataset::openTeacher(const TeacherFacts &needs) {
  teachers.clear();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string path = folder + "/" + listed.shards[i].file + ".teacher";
    if (!std::filesystem::exists(path))
      return Status::error("'{}' has no probabilities of a teacher{}; run: "
                           "tessera data teacher {} --model DIR --top {}",
                           folder, i == 0 ? "" : " for some shards", folder,
                           needs.top);
    StatusOr<TeacherShard> teacher =
        TeacherShard::open(path, shards[i].header());
    if (!teacher.ok())
      return teacher.status();
    TESSERA_RETURN_IF_ERROR(checkTeacher(teacher->facts(), needs, folder));
    // Not its hash: that would read all of it, on every rank. Records are
    // checked as they are read.
    teachers.push_back(teacher.take());
  }
  return Status::success();
}

// Chosen and rejected answers, one after the other.
static bool arePairs(std::span<const PackedDocument> documents) {
  for (std::size_t i = 0; i < documents.size(); ++i)
    if (documents[i].kind !=
        (i % 2 == 0 ? DocumentKind::Chosen : DocumentKind::Rejected))
      return false;
  return documents.size() % 2 == 0;
}

Status PackedDataset::contents(uint64_t number, PackedRowContents &out) const {
  if (number >= rows())
    return Status::error("row {} of packed rows was asked for, but there are "
                         "{}",
                         number, rows());
  const std::size_t shard = shardOf(number);
  TESSERA_RETURN_IF_ERROR(shards[shard].read(number - shardBegins[shard], out));
  if (listed.objective == PackedObjective::Preference &&
      !arePairs(out.documents))
    return Status::error("row {} of '{}' is not of pairs, each a chosen and "
                         "then a rejected answer; write the folder again with "
                         "`tessera data chat`",
                         number - shardBegins[shard],
                         listed.shards[shard].file);
  return Status::success();
}

std::size_t PackedDataset::shardOf(uint64_t row) const {
  auto after = std::upper_bound(shardBegins.begin(), shardBegins.end(), row);
  return std::size_t(after - shardBegins.begin()) - 1;
}

// Of the tokens of row `number`, one after the other.
Status PackedDataset::readReference(uint64_t number, std::size_t tokens,
                                    std::vector<float> &out) const {
  const std::size_t shard = shardOf(number);
  StatusOr<uint64_t> first =
      shards[shard].firstToken(number - shardBegins[shard]);
  if (!first.ok())
    return first.status();
  out.resize(tokens);
  return references[shard].read(*first, out);
}

Status PackedDataset::readTeacher(uint64_t number, std::size_t tokens,
                                  std::size_t top, TeacherRow &out) const {
  const std::size_t shard = shardOf(number);
  StatusOr<uint64_t> first =
      shards[shard].firstToken(number - shardBegins[shard]);
  if (!first.ok())
    return first.status();
  out.top = top;
  out.tokens.resize(tokens * top);
  out.logProbs.resize(tokens * (top + 1));
  return teachers[shard].read(*first, tokens, top, out.tokens, out.logProbs);
}

Status PackedDataset::noTeacher(uint64_t number, std::size_t token) const {
  const std::size_t shard = shardOf(number);
  return Status::error("{}/{}.teacher: row {} has nothing for its token {}, "
                       "which is learned; run `tessera data teacher` again",
                       folder, listed.shards[shard].file,
                       number - shardBegins[shard], token);
}

StatusOr<uint64_t> PackedDataset::mostDocuments() const {
  uint64_t most = 0;
  for (const PackedShard &shard : shards) {
    StatusOr<uint64_t> found = shard.mostDocuments();
    if (!found.ok())
      return found.status();
    most = std::max(most, *found);
  }
  return most;
}

PackedRowSpans PackedRowSpans::row(uint64_t number, uint64_t sequence) const {
  // Of several elements a position.
  auto wide = [&](auto all, std::size_t width) {
    return all.empty()
               ? all
               : all.subspan(number * sequence * width, sequence * width);
  };
  auto part = [&](std::span<int32_t> all) { return wide(all, 1); };
  const std::size_t top =
      teacherTokens.empty() ? 0 : teacherTokens.size() / tokens.size();
  return {part(tokens),
          part(targets),
          part(lossMask),
          part(segments),
          part(positions),
          part(labels),
          wide(reference, 1),
          wide(teacherTokens, top),
          wide(teacherLogProbs, top + 1)};
}

namespace {
/// Fills the spans of one row, position by position.
class RowWriter {
public:
  explicit RowWriter(const PackedRowSpans &out) : out(out) {}

  void put(int32_t token, int32_t target, int32_t segment, int32_t position,
           int32_t label = 0) {
    set(out.tokens, token);
    set(out.targets, target);
    set(out.lossMask, target != ignoredTarget);
    set(out.segments, segment);
    set(out.positions, position);
    set(out.labels, label);
    ++at;
  }
  std::size_t position() const { return at; }

private:
  void set(std::span<int32_t> to, int32_t value) const {
    if (!to.empty())
      to[at] = value;
  }
  const PackedRowSpans &out;
  std::size_t at = 0;
};
} // namespace

static int32_t labelOf(DocumentKind kind) {
  return kind == DocumentKind::Desirable     ? 1
         : kind == DocumentKind::Undesirable ? -1
                                             : 0;
}

// What the teacher says of token `token` of the row goes to the position
// before. False if it says nothing.
static bool putTeacher(const TeacherRow &from, std::size_t token,
                       const PackedRowSpans &out) {
  const std::size_t top = from.top, width = top + 1, position = token - 1;
  if (from.tokens[token * top] == kNoTeacherToken)
    return false;
  std::copy_n(from.tokens.begin() + long(token * top), top,
              out.teacherTokens.begin() + long(position * top));
  std::copy_n(from.logProbs.begin() + long(token * width), width,
              out.teacherLogProbs.begin() + long(position * width));
  return true;
}

Status PackedDataset::row(uint64_t number, const PackedRowSpans &out) const {
  PackedRowContents from;
  TESSERA_RETURN_IF_ERROR(contents(number, from));
  TeacherRow teacher;
  if (!out.teacherTokens.empty()) {
    TESSERA_RETURN_IF_ERROR(
        readTeacher(number, from.tokens.size(),
                    out.teacherTokens.size() / listed.sequence, teacher));
    std::ranges::fill(out.teacherTokens, ignoredTarget);
    std::ranges::fill(out.teacherLogProbs, 0.0f);
  }
  std::vector<float> reference;
  if (!out.reference.empty()) {
    TESSERA_RETURN_IF_ERROR(
        readReference(number, from.tokens.size(), reference));
    std::ranges::fill(out.reference, 0.0f);
  }
  RowWriter writer(out);
  int32_t segment = 0;
  for (const PackedDocument &document : from.documents) {
    for (uint32_t i = 0; i < document.length; ++i) {
      const std::size_t next = writer.position() + 1;
      const bool learned = i + 1 < document.length && from.supervised[next];
      if (learned && !reference.empty())
        out.reference[next - 1] = reference[next];
      if (learned && teacher.top > 0 && !putTeacher(teacher, next, out))
        return noTeacher(number, next);
      writer.put(from.tokens[next - 1],
                 learned ? from.tokens[next] : ignoredTarget, segment,
                 int32_t(i), labelOf(document.kind));
    }
    ++segment;
  }
  for (int32_t i = 0; writer.position() < listed.sequence; ++i)
    writer.put(int32_t(listed.paddingToken), ignoredTarget, ignoredTarget, i);
  return Status::success();
}

Status PackedDataset::documents(uint64_t number,
                                std::vector<PlacedDocument> &out) const {
  PackedRowContents from;
  TESSERA_RETURN_IF_ERROR(contents(number, from));
  out.clear();
  uint32_t begin = 0;
  for (const PackedDocument &document : from.documents) {
    out.push_back({begin, document});
    begin += document.length;
  }
  return Status::success();
}

StatusOr<bool> PackedDataset::has(DocumentKind kind) const {
  std::vector<PlacedDocument> found;
  for (uint64_t row = 0; row < rows(); ++row) {
    TESSERA_RETURN_IF_ERROR(documents(row, found));
    if (std::ranges::any_of(found, [&](const PlacedDocument &each) {
          return each.document.kind == kind;
        }))
      return true;
  }
  return false;
}

uint64_t PackedDataset::rowOf(uint64_t seed, uint64_t k) const {
  KeyedPermutation order(rows(), mix64(seed) + k / rows());
  return order(k % rows());
}

Status PackedDataset::batch(uint64_t seed, uint64_t k,
                            std::span<const uint64_t> rows,
                            const PackedRowSpans &out) const {
  for (uint64_t each : rows)
    TESSERA_RETURN_IF_ERROR(
        row(rowOf(seed, k + each), out.row(each, listed.sequence)));
  return Status::success();
}

Status PackedDataset::evalBatch(uint64_t index, uint64_t batches,
                                uint64_t batchRows,
                                std::span<const uint64_t> rows,
                                const PackedRowSpans &out) const {
  const uint64_t all = listed.rows, wanted = batchRows * batches;
  for (uint64_t each : rows) {
    const uint64_t number = index * batchRows + each;
    const bool spare = wanted > all && number >= all;
    uint64_t place = spare ? 0 : number;
    if (wanted < all)
      place = uint64_t(static_cast<unsigned __int128>(number) * all / wanted);
    const PackedRowSpans to = out.row(each, listed.sequence);
    TESSERA_RETURN_IF_ERROR(row(place, to));
    if (!spare)
      continue;
    std::fill(to.targets.begin(), to.targets.end(), ignoredTarget);
    std::fill(to.lossMask.begin(), to.lossMask.end(), 0);
    std::fill(to.segments.begin(), to.segments.end(), ignoredTarget);
    std::fill(to.labels.begin(), to.labels.end(), 0);
    std::ranges::fill(to.teacherTokens, ignoredTarget);
    std::ranges::fill(to.teacherLogProbs, 0.0f);
  }
  return Status::success();
}

} // namespace tessera
