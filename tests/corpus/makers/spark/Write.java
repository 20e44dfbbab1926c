import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.hadoop.io.BytesWritable;
import org.apache.hadoop.io.NullWritable;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;
import org.tensorflow.hadoop.io.TFRecordFileOutputFormat;
import scala.Tuple2;

/**
 * Writes Examples, one in hexadecimal on each line of a file, with Spark and tensorflow-hadoop, the
 * output format in TensorFlow's own connector for Spark: a file for each of two partitions.
 */
public class Write {
  public static void main(String[] arguments) throws Exception {
    List<String> lines = new ArrayList<>(Files.readAllLines(Path.of(arguments[0])));
    SparkConf conf = new SparkConf().setMaster("local[1]").setAppName("corpus");
    try (JavaSparkContext spark = new JavaSparkContext(conf.set("spark.ui.enabled", "false"))) {
      spark
          .parallelize(lines, 2)
          .mapToPair(
              line ->
                  new Tuple2<>(
                      new BytesWritable(HexFormat.of().parseHex(line)), NullWritable.get()))
          .saveAsNewAPIHadoopFile(
              arguments[1],
              BytesWritable.class,
              NullWritable.class,
              TFRecordFileOutputFormat.class);
    }
  }
}
