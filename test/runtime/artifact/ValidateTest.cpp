// One hostile artifact for each proof of Validate.h about the whole file, its
// state and its programs; what devices have is in ValidateDeviceTest.cpp.
#include "test/runtime/artifact/HostileArtifact.h"

using namespace tessera;
using namespace tessera::test;

namespace {

NodeT nest(unsigned depth, std::uint64_t trip) {
  std::vector<std::uint64_t> strides(depth, 0);
  NodeT inner = fill(arg(Space::arena, 0, 64, strides), 0);
  for (unsigned i = 0; i < depth; ++i)
    inner = loop(trip, {inner});
  return inner;
}

/// 16 × 32 weights of 4 bits.
QuantizedT &quantize(std::unique_ptr<TensorT> &tensor) {
  tensor->quantized = std::make_unique<QuantizedT>();
  tensor->quantized->source = "m";
  tensor->quantized->bits = 4;
  tensor->quantized->group = 32;
  tensor->quantized->rows = 16;
  tensor->quantized->columns = 32;
  return *tensor->quantized;
}

/// A buffer of the whole artifact's program, sound but for what is changed.
BufferT &buffer(ArtifactT &artifact) {
  BufferT one;
  one.shape = {16};
  one.bytes = 64;
  one.last = 2;
  auto &buffers = cpu(artifact).programs[0]->buffers;
  buffers.push_back(std::make_unique<BufferT>(one));
  return *buffers.back();
}

const Hostile kHostile[] = {
    {"SchemaVersion", [](ArtifactT &a) { a.schema_version = 99; },
     "schema version 99, but this runtime reads 4 (the artifact is of compiler "
     "0.0-test); rebuild it: tessera compile models/specs/test -o test.tsr"},
    {"StateTooLarge", [](ArtifactT &a) { share(a).state_bytes = kHuge; },
     "a state of 18446744073709551615 bytes exceeds"},
    {"ControlCharacters", [](ArtifactT &a) { a.program_hash = "a\nb"; },
     "program_hash holds control characters"},
    {"RebuildCommandWithEscape",
     [](ArtifactT &a) { a.rebuild_command = "\x1b[2J"; },
     "rebuild_command holds control characters; rebuild it: (unprintable)"},

    {"ScheduleWithEscape",
     [](ArtifactT &a) {
       a.pipeline = std::make_unique<PipelineT>();
       a.pipeline->schedule = "\x1b[2J";
     },
     "its schedule holds control characters"},
    {"WorkOfOtherStages",
     [](ArtifactT &a) {
       a.pipeline = std::make_unique<PipelineT>();
       a.pipeline->forward = a.pipeline->backward = {1, 2};
       a.pipeline->weights = {1};
     },
     "the work of 2 stages one way and of 1 another"},
    {"WorkOfOtherStagesBefore",
     [](ArtifactT &a) {
       a.pipeline = std::make_unique<PipelineT>();
       a.pipelines_before.push_back(std::make_unique<PipelineT>());
       a.pipelines_before[0]->forward = {1, 2};
     },
     "the work of 2 stages one way and of 0 another"},
    {"LoopBeforeNone",
     [](ArtifactT &a) {
       a.pipelines_before.push_back(std::make_unique<PipelineT>());
     },
     "loops of a pipeline before one that is not there"},

    {"TensorName", [](ArtifactT &a) { share(a).state[0]->name = "a b"; },
     "state tensor 0: its name is empty, too long or not plain ASCII"},
    {"TensorNameEmpty", [](ArtifactT &a) { share(a).state[0]->name = ""; },
     "state tensor 0: its name is empty"},
    {"TensorNameTooLong",
     [](ArtifactT &a) { share(a).state[0]->name = std::string(513, 'n'); },
     "state tensor 0: its name is empty, too long"},
    {"TensorNameTwice", [](ArtifactT &a) { share(a).state[1]->name = "w"; },
     "state tensor 'w' is listed twice"},
    {"TensorType",
     [](ArtifactT &a) {
       share(a).state[0]->type = static_cast<ElementType>(77);
     },
     "state tensor 'w': unknown element type 77"},
    {"TensorRole",
     [](ArtifactT &a) { share(a).state[0]->role = static_cast<Role>(77); },
     "state tensor 'w': unknown role 77"},
    {"TensorRoleElsewhere",
     [](ArtifactT &a) { share(a).state[0]->role = Role::input; },
     "state tensor 'w': role input does not belong here"},
    {"TensorSpace",
     [](ArtifactT &a) { share(a).state[0]->space = Space::arena; },
     "state tensor 'w': space 1 instead of state"},
    {"TensorBytes", [](ArtifactT &a) { share(a).state[0]->bytes = 60; },
     "state tensor 'w': shape [4, 4] of f32 takes 64 bytes, but 60 are"},
    {"TensorNegative",
     [](ArtifactT &a) { share(a).state[0]->shape = {-4, -4}; },
     "state tensor 'w': shape [-4, -4] is negative or overflows"},
    {"TensorOverflow",
     [](ArtifactT &a) {
       share(a).state[0]->shape = {std::int64_t(1) << 40, std::int64_t(1)
                                                              << 40};
     },
     "is negative or overflows"},
    {"TensorRank", [](ArtifactT &a) { share(a).state[0]->shape.assign(9, 1); },
     "state tensor 'w': rank 9 is above 8"},
    {"TensorMisaligned", [](ArtifactT &a) { share(a).state[0]->offset = 32; },
     "state tensor 'w': offset 32 is not a multiple of 64"},
    {"TensorOutside", [](ArtifactT &a) { share(a).state[2]->offset = 192; },
     "state tensor 'step': 8 bytes at 192 leave the state of 192 bytes"},
    {"TensorWraps",
     [](ArtifactT &a) { share(a).state[2]->offset = kHuge - 63; },
     "leave the state of 192 bytes"},
    {"TensorsOverlap", [](ArtifactT &a) { share(a).state[1]->offset = 0; },
     "overlap"},
    {"DecayOnMoment", [](ArtifactT &a) { share(a).state[1]->decay = true; },
     "state tensor 'w.exp_avg': weight decay on the role optimizer"},
    {"QuantizedMoment", [](ArtifactT &a) { quantize(share(a).state[1]); },
     "state tensor 'w.exp_avg': quantized, with the role optimizer"},
    {"QuantizedSource",
     [](ArtifactT &a) { quantize(share(a).state[0]).source = ""; },
     "the name of what is quantized is empty, too long or not plain ASCII"},
    {"QuantizedBits",
     [](ArtifactT &a) { quantize(share(a).state[0]).bits = 3; },
     "3 bits in groups of 32 for a matrix of 16 × 32"},
    {"QuantizedGroup",
     [](ArtifactT &a) { quantize(share(a).state[0]).group = 33; },
     "4 bits in groups of 33 for a matrix of 16 × 32"},
    {"QuantizedZeros",
     [](ArtifactT &a) {
       QuantizedT &of = quantize(share(a).state[0]);
       of.bits = 16;
       of.zeros = true;
     },
     "state tensor 'w': zero points of weights that have no scales"},
    {"QuantizedFloats",
     [](ArtifactT &a) {
       QuantizedT &of = quantize(share(a).state[0]);
       of.floats = true;
       of.group = 96;
     },
     "state tensor 'w': floats of 4 bits"},
    {"QuantizedMxfp4",
     [](ArtifactT &a) {
       QuantizedT &of = quantize(share(a).state[0]);
       of.floats = true;
       of.columns = 48;
     },
     "state tensor 'w': mxfp4 in groups of 32 for rows of 48 weights"},
    {"QuantizedFloatsZeros",
     [](ArtifactT &a) {
       QuantizedT &of = quantize(share(a).state[0]);
       of.bits = 8;
       of.floats = of.zeros = true;
     },
     "state tensor 'w': floats of 8 bits with zero points"},
    {"QuantizedSuperBlocks",
     [](ArtifactT &a) {
       QuantizedT &of = quantize(share(a).state[0]);
       of.super_blocks = true;
       of.group = 256;
     },
     "state tensor 'w': super-blocks of 4 bits and 256 columns for 16 × 32 "
     "weights"},
    {"QuantizedSuperBlocksZeros",
     [](ArtifactT &a) {
       QuantizedT &of = quantize(share(a).state[0]);
       of.super_blocks = of.zeros = true;
       of.group = of.columns = 256;
     },
     "16 × 256 weights with zero points or floats"},
    {"QuantizedSuperBlocksBits",
     [](ArtifactT &a) {
       QuantizedT &of = quantize(share(a).state[0]);
       of.super_blocks = true;
       of.bits = 3;
       of.group = of.columns = 256;
     },
     "super-blocks of 3 bits and 256 columns for 16 × 256 weights"},
    {"QuantizedSuperBlocksShape",
     [](ArtifactT &a) {
       QuantizedT &of = quantize(share(a).state[0]);
       of.super_blocks = true;
       of.bits = 6;
       of.group = of.columns = 256;
     },
     "weights have another shape"},
    {"QuantizedRows",
     [](ArtifactT &a) { quantize(share(a).state[0]).rows = kHuge; },
     "4 bits in groups of 32 for a matrix of"},
    {"QuantizedStack",
     [](ArtifactT &a) {
       QuantizedT &of = quantize(share(a).state[0]);
       of.rows = 48;
       of.stack = 3;
     },
     "state tensor 'w': a stack of 3 matrices of 48 rows in all"},
    {"QuantizedStackOfParts",
     [](ArtifactT &a) {
       QuantizedT &of = quantize(share(a).state[0]);
       of.source = "m.*";
       of.stack = 2;
     },
     "state tensor 'w': a stack of 2 matrices of 16 rows in all"},
    {"QuantizedStackTransposed",
     [](ArtifactT &a) {
       QuantizedT &of = quantize(share(a).state[0]);
       of.rows = 32;
       of.stack = 2;
       of.transposed = true;
     },
     "state tensor 'w': a stack of 2 matrices of 32 rows in all"},
    {"QuantizedShape", [](ArtifactT &a) { quantize(share(a).state[0]); },
     "state tensor 'w': the values of 16 × 32 weights have another shape"},
    {"CounterType",
     [](ArtifactT &a) { share(a).state[2]->type = ElementType::f64; },
     "state tensor 'step': a counter must be one i64 or a table of f32, got 1 "
     "× "
     "f64"},
    {"MetricShape",
     [](ArtifactT &a) {
       cpu(a).programs[0]->outputs[0]->shape = {2};
       cpu(a).programs[0]->outputs[0]->bytes = 8;
     },
     "output 'loss': a metric must be one f32, f64, i32 or i64, got 2 × f32"},
    {"MetricType",
     [](ArtifactT &a) {
       cpu(a).programs[0]->outputs[0]->type = ElementType::bf16;
       cpu(a).programs[0]->outputs[0]->bytes = 2;
     },
     "got 1 × bf16"},
    {"InputOutsideIo",
     [](ArtifactT &a) { cpu(a).programs[0]->inputs[0]->offset = 192; },
     "program 'train_step': input 'tokens': 256 bytes at 192 leave the io"},
    {"OutputRole",
     [](ArtifactT &a) {
       cpu(a).programs[0]->outputs[1]->role = Role::parameter;
     },
     "output 'row': role parameter does not belong here"},

    {"ProgramName",
     [](ArtifactT &a) { cpu(a).programs[0]->name = "train step"; },
     "program name 'train step' is not a C identifier"},
    {"ProgramTwice",
     [](ArtifactT &a) {
       cpu(a).programs.push_back(
           std::make_unique<ProgramT>(*cpu(a).programs[0]));
     },
     "program 'train_step' is listed twice"},
    {"ArenaTooLarge",
     [](ArtifactT &a) { cpu(a).programs[0]->arena_bytes = kHuge; },
     "program 'train_step': its arena of"},
    {"IoTooLarge", [](ArtifactT &a) { cpu(a).programs[0]->io_bytes = kHuge; },
     "program 'train_step': its io of"},

    {"KernelIndex",
     [](ArtifactT &a) { step(a, 2).step.AsLaunch()->kernel = 2; },
     "step 2 (test.launch): launch of kernel 2, but there are 2"},
    {"NoInstance",
     [](ArtifactT &a) { step(a, 2).step.AsLaunch()->instances.clear(); },
     "launch of 'update' without an instance"},
    {"ArgumentCount", [](ArtifactT &a) { innerInstance(a).args.pop_back(); },
     "step 1 (test.loop): loop: step 0 (h.0.sum): 'add_row' instance 0: 1 "
     "arguments, but the kernel takes 2"},
    {"SizesCount", [](ArtifactT &a) { innerInstance(a).sizes.clear(); },
     "0 sizes, but the kernel takes 1"},
    {"Blocks",
     [](ArtifactT &a) { innerInstance(a).blocks = std::uint64_t(1) << 32; },
     "launch of 'add_row' with 2^32 blocks or more"},
    {"BlocksWrap",
     [](ArtifactT &a) {
       auto &instances =
           step(a, 1).step.AsLoop()->body[0]->step.AsLaunch()->instances;
       instances.push_back(std::make_unique<InstanceT>(*instances[0]));
       instances[1]->blocks = kHuge;
     },
     "launch of 'add_row' with 2^32 blocks or more"},
    {"ArgumentSpace",
     [](ArtifactT &a) { launchArg(a, 0).space = static_cast<Space>(3); },
     "argument 0: unknown space 3"},
    {"ArgumentMisaligned", [](ArtifactT &a) { launchArg(a, 1).offset = 4; },
     "argument 1: offset 4 is not a multiple of 64"},
    {"ArgumentOutside", [](ArtifactT &a) { launchArg(a, 1).offset = 128; },
     "argument 1: 64 bytes at 128 leave the arena of 128 bytes in the last "
     "iteration"},
    {"ArgumentWraps", [](ArtifactT &a) { launchArg(a, 1).bytes = kHuge; },
     "leave the arena of 128 bytes"},
    {"LastIterationOutside",
     [](ArtifactT &a) { launchArg(a, 0).loop_strides[0] = 128; },
     "argument 0: 64 bytes at 0 leave the io of 384 bytes in the last"},
    {"StrideWraps",
     [](ArtifactT &a) {
       launchArg(a, 0).loop_strides[0] = std::uint64_t(1) << 63;
     },
     "leave the io of 384 bytes in the last iteration"},
    {"StridesMissing",
     [](ArtifactT &a) { launchArg(a, 0).loop_strides.clear(); },
     "argument 0: 0 loop strides inside 1 loops"},
    {"StridesTooMany",
     [](ArtifactT &a) { launchArg(a, 0).loop_strides.push_back(0); },
     "argument 0: 2 loop strides inside 1 loops"},
    {"LoopNeverRuns", [](ArtifactT &a) { step(a, 1).step.AsLoop()->trip = 0; },
     "step 1 (test.loop): loop that never runs"},
    {"LoopRunsForever",
     [](ArtifactT &a) { step(a, 1).step.AsLoop()->trip = kHuge; }, "runs"},
    {"LoopProduct", [](ArtifactT &a) { step(a, 1) = nest(4, 1000); },
     "loop of 1000 trips inside 1000000000 others exceeds"},
    {"LoopDepth", [](ArtifactT &a) { step(a, 1) = nest(9, 1); },
     "loops nest deeper than 8"},
    {"CopySizes",
     [](ArtifactT &a) { step(a, 3).step.AsCopy()->from->bytes = 32; },
     "step 3 (test.copy): copy of 32 bytes into 64"},
    {"CopySource",
     [](ArtifactT &a) { step(a, 3).step.AsCopy()->from->offset = 65; },
     "copy source: 64 bytes at 65 leave the arena of 128 bytes"},
    {"CopyDestination",
     [](ArtifactT &a) { step(a, 3).step.AsCopy()->to->offset = 321; },
     "copy destination: 64 bytes at 321 leave the io"},
    {"FillDestination",
     [](ArtifactT &a) { step(a, 0).step.AsFill()->to->bytes = 129; },
     "fill destination: 129 bytes at 0 leave the arena of 128 bytes"},
    {"Origin", [](ArtifactT &a) { step(a, 0).origin = "a\tb"; },
     "step 0: its origin holds control characters"},
    {"Layer", [](ArtifactT &a) { step(a, 0).layer = -2; },
     "step 0: unknown layer -2"},
    {"BufferUse",
     [](ArtifactT &a) { buffer(a).use = static_cast<BufferUse>(99); },
     "buffer of unknown use 99 or type 0"},
    {"BufferShape", [](ArtifactT &a) { buffer(a).shape.resize(9, 1); },
     "buffer of 9 dimensions"},
    {"BufferOutside", [](ArtifactT &a) { buffer(a).offset = 65; },
     "buffer of 64 bytes at 65 leaves the arena of 128"},
    {"BufferWraps", [](ArtifactT &a) { buffer(a).bytes = kHuge; },
     "leaves the arena of 128"},
    {"BufferDiesFirst", [](ArtifactT &a) { buffer(a).first = 3; },
     "buffer lives from step 3 to 2 of 6"},
    {"BufferLivesOn", [](ArtifactT &a) { buffer(a).last = 6; },
     "buffer lives from step 0 to 6 of 6"},
};

class Validate : public HostileTest {};

} // namespace

TEST(ValidateArtifact, AcceptsTheSmallOne) {
  EXPECT_EQ(errorOf(smallArtifact()), "");
  EXPECT_EQ(errorOf(emptyArtifact()), "");
}

TEST(ValidateArtifact, AcceptsTheDeepestNestAndOddCopies) {
  ArtifactT artifact = smallArtifact();
  step(artifact, 1) = nest(kMaxLoopDepth, 16);
  step(artifact, 3) = copy(arg(Space::arena, 3, 5), arg(Space::io, 321, 5));
  EXPECT_EQ(errorOf(artifact), "");
}

TEST(ValidateArtifact, AcceptsBuffers) {
  ArtifactT artifact = smallArtifact();
  buffer(artifact);
  EXPECT_EQ(errorOf(artifact), "");
}

TEST(ValidateArtifact, UnknownKindOfStep) {
  // The object API cannot write it, so the tag is changed in the buffer.
  AlignedBytes bytes(pack(smallArtifact()));
  const auto *artifact = GetArtifact(bytes.span().data());
  const Node *node = artifact->shares()
                         ->Get(0)
                         ->devices()
                         ->Get(0)
                         ->programs()
                         ->Get(0)
                         ->steps()
                         ->Get(0);
  auto *table =
      reinterpret_cast<flatbuffers::Table *>(const_cast<Node *>(node));
  ASSERT_TRUE(table->SetField<std::uint8_t>(Node::VT_STEP_TYPE, 9, 0));
  EXPECT_NE(ArtifactReader::fromBytes(bytes.span(), "hostile")
                .message()
                .find("step 0 (test.fill): unknown kind of step 9"),
            std::string::npos);
}

// The FlatBuffers verifier lets these pass. A vector of the one number 1 is
// moved by four bytes, so that its length is what was the number's lower half.
TEST(ValidateArtifact, MisalignedVectors) {
  ArtifactT artifact = smallArtifact();
  share(artifact).state[2]->shape = {1};
  innerInstance(artifact).sizes = {1};
  launchArg(artifact, 0).loop_strides = {1};
  const auto errorWith = [&](auto tableOf, flatbuffers::voffset_t field) {
    AlignedBytes bytes(pack(artifact));
    const Artifact *root = GetArtifact(bytes.span().data());
    auto *table = reinterpret_cast<flatbuffers::Table *>(
        const_cast<void *>(static_cast<const void *>(tableOf(*root))));
    std::uint8_t *offset = table->GetAddressOf(field);
    flatbuffers::WriteScalar(
        offset, flatbuffers::ReadScalar<flatbuffers::uoffset_t>(offset) + 4);
    return ArtifactReader::fromBytes(bytes.span(), "hostile").message();
  };
  const auto instanceOf = [](const Artifact &root) {
    const Loop *loop = root.shares()
                           ->Get(0)
                           ->devices()
                           ->Get(0)
                           ->programs()
                           ->Get(0)
                           ->steps()
                           ->Get(1)
                           ->step_as_Loop();
    return loop->body()->Get(0)->step_as_Launch()->instances()->Get(0);
  };
  EXPECT_NE(errorWith(
                [](const Artifact &root) {
                  return root.shares()->Get(0)->state()->Get(2);
                },
                Tensor::VT_SHAPE)
                .find("state tensor 'step': its shape is misaligned"),
            std::string::npos);
  EXPECT_NE(errorWith(instanceOf, Instance::VT_SIZES)
                .find("'add_row' instance 0: its sizes are misaligned"),
            std::string::npos);
  EXPECT_NE(errorWith(
                [&](const Artifact &root) {
                  return instanceOf(root)->args()->Get(0);
                },
                Arg::VT_LOOP_STRIDES)
                .find("argument 0: its loop strides are misaligned"),
            std::string::npos);
}

TEST_P(Validate, Refuses) { expectRefused(); }

INSTANTIATE_TEST_SUITE_P(Hostile, Validate, testing::ValuesIn(kHostile),
                         nameOf);
