import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.beam.sdk.Pipeline;
import org.apache.beam.sdk.coders.ByteArrayCoder;
import org.apache.beam.sdk.io.Compression;
import org.apache.beam.sdk.io.TFRecordIO;
import org.apache.beam.sdk.transforms.Create;

/** Writes Examples, one in hexadecimal on each line of a file, with TFRecordIO: plain, GZIP and ZLIB. */
public class Write {
  public static void main(String[] arguments) throws Exception {
    List<byte[]> records = new ArrayList<>();
    for (String line : Files.readAllLines(Path.of(arguments[0]))) {
      records.add(HexFormat.of().parseHex(line));
    }
    for (Compression packed :
        List.of(Compression.UNCOMPRESSED, Compression.GZIP, Compression.DEFLATE)) {
      write(records, arguments[1] + "/a.tfrecord", packed);
    }
  }

  /** Writes one file; Beam appends the ending of the compression to its name. */
  private static void write(List<byte[]> records, String path, Compression packed) {
    Pipeline pipeline = Pipeline.create();
    pipeline
        .apply(Create.of(records).withCoder(ByteArrayCoder.of()))
        .apply(TFRecordIO.write().to(path).withoutSharding().withCompression(packed));
    pipeline.run().waitUntilFinish();
  }
}
