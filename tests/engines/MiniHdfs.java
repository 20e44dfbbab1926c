import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** One name node and one data node of HDFS; prints the port of WebHDFS. */
public class MiniHdfs {
  public static void main(String[] arguments) throws Exception {
    Configuration configuration = new Configuration();
    configuration.set("dfs.permissions.enabled", "false");
    configuration.set("dfs.datanode.hostname", "localhost");
    MiniDFSCluster cluster =
        new MiniDFSCluster.Builder(configuration, new File(arguments[0])).numDataNodes(1).build();
    cluster.waitActive();
    System.out.println("port " + cluster.getNameNode().getHttpAddress().getPort());
    Thread.sleep(Long.MAX_VALUE);
  }
}
