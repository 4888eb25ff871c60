// What is written is read back; nothing stays behind when writing stops or fails.
#include "support/temporary_folder.h"
#include "weights/gguf.h"
#include "weights/gguf_write.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kapitsa::weights {
namespace {

class GgufWrite : public testing::Test {
protected:
  GgufWrite() {
    StringList words;
    words.push_back("one");
    words.push_back("");
    metadata_["bool"] = true;
    metadata_["int"] = int64_t{7};
    metadata_["below zero"] = int64_t{-7};
    metadata_["large"] = int64_t{1} << 40;
    metadata_["number"] = 0.5;
    metadata_["text"] = std::string("caf\xC3\xA9");
    metadata_["flags"] = std::vector<bool>{true, false};
    metadata_["ints"] = std::vector<int64_t>{1, -2};
    metadata_["large ints"] = std::vector<int64_t>{1, int64_t{1} << 45};
    metadata_["large ints below zero"] = std::vector<int64_t>{-1, int64_t{1} << 45};
    metadata_["numbers"] = std::vector<double>{0.25, -8.0};
    metadata_["words"] = std::move(words);
    tensors_.push_back({.name = "small", .dtype = DType::f32, .shape = {3}});
    tensors_.push_back({.name = "blocks", .dtype = DType::q8_0, .shape = {2, 3, 64}});
  }

  GgufSource source() {
    return {.metadata = metadata_,
            .tensors = tensors_,
            .data = [](const Tensor& tensor, std::span<std::byte> out) -> Status {
              for (size_t i = 0; i < out.size(); ++i)
                out[i] = static_cast<std::byte>(i * 7 + tensor.name.size());
              return {};
            },
            .is_zero = {},
            .progress = {}};
  }

  std::map<std::string, Value, std::less<>> metadata_;
  std::deque<Tensor> tensors_;
  test::TemporaryFolder folder_;
};

TEST_F(GgufWrite, is_read_back_as_it_was) {
  const auto path = folder_ / "a.gguf";
  const auto bytes = write_gguf(path, source());
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  EXPECT_EQ(static_cast<int64_t>(std::filesystem::file_size(path)), *bytes);
  const auto file = read_gguf(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->metadata().size(), metadata_.size());
  for (const auto& [key, value] : metadata_) {
    ASSERT_TRUE(file->has(key)) << key;
    EXPECT_EQ(describe(*file->value(key)), describe(value)) << key;
  }
  ASSERT_EQ(file->tensors().size(), 2U);
  for (const Tensor& expected : tensors_) {
    const Tensor* found = file->find(expected.name);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->dtype, expected.dtype);
    EXPECT_EQ(found->shape, expected.shape);
    std::vector<std::byte> data(found->data.size());
    ASSERT_TRUE(source().data(expected, data).ok());
    EXPECT_TRUE(std::ranges::equal(found->data, data)) << expected.name;
  }
}

TEST_F(GgufWrite, tensor_of_zeros_takes_no_room) {
  constexpr int64_t kLarge = int64_t{1} << 40;  // more than a disk has room for
  tensors_.push_front({.name = "none", .dtype = DType::f32, .shape = {kLarge / 4}});
  GgufSource holed = source();
  holed.is_zero = [](const Tensor& tensor) { return tensor.name == "none"; };
  const auto path = folder_ / "a.gguf";
  const auto bytes = write_gguf(path, holed);
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  const auto file = read_gguf(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto zeros = file->find("none")->data;
  EXPECT_EQ(std::ssize(zeros), kLarge);
  EXPECT_EQ(zeros.front(), std::byte{0});
  EXPECT_EQ(zeros.back(), std::byte{0});
  const auto small = file->find("small")->data;
  EXPECT_EQ(small[1], static_cast<std::byte>(7 + 5));
}

TEST_F(GgufWrite, leaves_nothing_when_it_is_stopped) {
  const auto path = folder_ / "a.gguf";
  GgufSource stopped = source();
  stopped.progress = [](int64_t done, int64_t total) {
    EXPECT_LE(done, total);
    return false;
  };
  const auto bytes = write_gguf(path, stopped);
  ASSERT_FALSE(bytes.ok());
  EXPECT_EQ(bytes.error().code, ErrorCode::cancelled);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(GgufWrite, keeps_the_old_file_when_data_is_missing) {
  const auto path = folder_.write("a.gguf", "old");
  GgufSource broken = source();
  broken.data = [](const Tensor&, std::span<std::byte>) -> Status {
    return Error{ErrorCode::unsupported, "no data"};
  };
  EXPECT_FALSE(write_gguf(path, broken).ok());
  EXPECT_EQ(std::filesystem::file_size(path), 3U);
}

TEST_F(GgufWrite, names_a_folder_that_is_not_there) {
  const auto bytes = write_gguf(folder_ / "none" / "a.gguf", source());
  ASSERT_FALSE(bytes.ok());
  EXPECT_THAT(bytes.error().message, testing::HasSubstr("none"));
}

}  // namespace
}  // namespace kapitsa::weights
